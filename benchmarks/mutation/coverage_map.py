"""The tests that run each line of the audited modules, measured once and kept under `build/mutation/`.

A module that has changed since is looked up as a whole, and so is a line that runs at import: all tests that ran any line of
it. Tests that start other processes count
where their own process runs the line.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from mutants import MODULES, ROOT, modules, runs_at_import

BUILD = ROOT / "build" / "mutation"
TESTS = (
    "tests/compare",
    "tests/explore",
    "tests/trace/test_trace_file.py",
    "tests/trace/test_attempts.py",
    "tests/trace/test_flight_recorder.py",
    "tests/trace/test_locked.py",
    "tests/report",
    "tests/cli/test_diff.py",
    "tests/cli/test_predictions_of_runs.py",
    "tests/cli/test_explained_runs.py",
)
_MAP = BUILD / "map.json"


class CoverageMap:
    """Which tests to run for a place, the quickest first."""

    def __init__(self, anew: bool = False) -> None:
        """Read the map, or make it, which takes as long as the tests do with coverage."""
        if anew or not _MAP.is_file():
            _measure()
            _MAP.write_text(json.dumps(_told()), encoding="utf-8")
        held = json.loads(_MAP.read_text(encoding="utf-8"))
        self._lines: dict[str, dict[str, list[int]]] = held["lines"]
        self._tests: list[str] = held["tests"]
        self._seconds: dict[str, float] = held["seconds"]
        self._texts: dict[str, str] = held["texts"]

    def tests_of(self, module: str, first: int, last: int) -> list[tuple[str, float]]:
        """Tests with the seconds that each takes."""
        lines = self._lines.get(module, {})
        if self._texts.get(module) == _digest(module) and not runs_at_import(module, first):
            found = {test for line in range(first, last + 1) for test in lines.get(str(line), ())}
        else:
            found = {test for tests in lines.values() for test in tests}
        timed = [(self._tests[test], self._seconds[self._tests[test]]) for test in found]
        return sorted(timed, key=lambda pair: (pair[1], pair[0]))


def _measure() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    config, report = BUILD / "coveragerc", BUILD / "tests.xml"
    include = "".join(f"\n    {pattern}" for pattern in MODULES)
    config.write_text(f"[run]\ninclude ={include}\ndata_file = {BUILD / 'map.coverage'}\n", encoding="utf-8")
    flags = ["--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report=", f"--junitxml={report}"]
    quiet = ["-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    subprocess.run([sys.executable, "-m", "pytest", *quiet, *flags, *TESTS], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _told() -> dict[str, object]:
    """What the measured run says, of the tests that passed."""
    from coverage import CoverageData

    seconds = {}
    for case in ElementTree.parse(BUILD / "tests.xml").iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            seconds[(case.get("classname", ""), case.get("name", ""))] = float(case.get("time", "0"))
    data = CoverageData(str(BUILD / "map.coverage"))
    data.read()
    numbers: dict[str, int] = {}
    times: dict[str, float] = {}
    lines: dict[str, dict[str, list[int]]] = {}
    for path in modules():
        for line, contexts in data.contexts_by_lineno(str(ROOT / path)).items():
            for context in contexts:
                test = context.rpartition("|")[0]
                file, _, name = test.partition("::")
                took = seconds.get((file.removesuffix(".py").replace("/", "."), name))
                if took is not None:
                    times[test] = took
                    lines.setdefault(path, {}).setdefault(str(line), []).append(numbers.setdefault(test, len(numbers)))
    held = {path: {line: sorted(set(tests)) for line, tests in found.items()} for path, found in lines.items()}
    return {"tests": list(numbers), "seconds": times, "lines": held, "texts": {path: _digest(path) for path in modules()}}


def _digest(module: str) -> str:
    return hashlib.sha256((ROOT / module).read_bytes()).hexdigest()
