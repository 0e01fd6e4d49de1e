"""The tests that run each line of the audited modules, kept under `build/mutation/`. Files of tests that changed are measured anew.

A line of a module that has changed since is looked up where it stood. One that is new is looked up as the whole module, and so
is a line that runs at import: all tests that ran any line of it. Tests that start other processes count where their own process
runs the line.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutants import MODULES, ROOT, modules, runs_at_import

BUILD = ROOT / "build" / "mutation"
TESTS = (
    "tests/compare",
    "tests/explore",
    "tests/knowledge",
    "tests/cases/test_cases.py",
    "tests/trace/test_trace_file.py",
    "tests/trace/test_attempts.py",
    "tests/trace/test_flight_recorder.py",
    "tests/trace/test_locked.py",
    "tests/report",
    "tests/rules/test_evidence_verdicts.py",
    "tests/rules/test_order_verdicts.py",
    "tests/rules/test_rank_dependent_hyperparameter.py",
    "tests/rules/test_replica_verdicts.py",
    "tests/rules/test_rule_verdicts.py",
    "tests/cli/test_diff.py",
    "tests/cli/test_predictions_of_runs.py",
    "tests/cli/test_explained_runs.py",
)
_MAP = BUILD / "map.json"


class CoverageMap:
    """Which tests to run for a place, the quickest of each first."""

    def __init__(self, anew: bool = False) -> None:
        """Read the map and bring it up to date; made anew, that takes as long as the tests do with coverage."""
        held = _nothing() if anew or not _MAP.is_file() else _read()
        files = {str(path.relative_to(ROOT)): _digest(path) for path in _files()}
        stale = [name for name, digest in files.items() if held["files"].get(name) != digest]
        if stale:
            print(f"coverage of {len(stale)} files of tests", flush=True)
            held = _merged(held, [*stale, *(name for name in held["files"] if name not in files)], stale)
            held["files"] = files
            _write(held)
        self._lines: dict[str, dict[str, list[str]]] = held["lines"]
        self._seconds: dict[str, float] = held["seconds"]
        self._texts: dict[str, str] = held["texts"]
        self._moved: dict[str, dict[int, int]] = {}
        self._at_import: dict[str, list[int]] = held["at_import"]

    def runs_at_import(self, module: str, first: int, last: int) -> bool:
        """Whether a line runs before any test does."""
        known, before = self._at_import.get(module, ()), self._lines_before(module)
        return runs_at_import(module, first) or any(before.get(line) in known for line in range(first, last + 1))

    def tests_of(self, module: str, first: int, last: int) -> list[tuple[str, float]]:
        """Tests with the seconds that each takes."""
        lines, before = self._lines.get(module, {}), self._lines_before(module)
        is_new = not any(line in before for line in range(first, last + 1))
        if not is_new and not self.runs_at_import(module, first, last):
            found = {test for line in range(first, last + 1) for test in lines.get(str(before.get(line)), ())}
        else:
            found = {test for tests in lines.values() for test in tests}
        quick = sorted(((test, self._seconds[test]) for test in found), key=lambda pair: (pair[1], pair[0]))
        turns: Counter[str] = Counter()  # cases of one test are much alike: one of each test comes first, then another
        keyed = []
        for test, seconds in quick:
            keyed.append((turns[test.partition("[")[0]], seconds, test))
            turns[test.partition("[")[0]] += 1
        return [(test, seconds) for _, seconds, test in sorted(keyed)]

    def _lines_before(self, module: str) -> dict[int, int]:
        """The number that each line of a module had when it was measured; without the lines that are new."""
        if module not in self._moved:
            self._moved[module] = _lines_of(self._texts.get(module, ""), (ROOT / module).read_text(encoding="utf-8"))
        return self._moved[module]


def _lines_of(old: str, new: str) -> dict[int, int]:
    """The number that each line of the new text has in the old one; without the lines that are new."""
    blocks = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False).get_matching_blocks()
    return {b + n + 1: a + n + 1 for a, b, size in blocks for n in range(size)}


def _nothing() -> dict[str, Any]:
    return {"files": {}, "seconds": {}, "lines": {}, "texts": {}, "at_import": {}}


def _read() -> dict[str, Any]:
    held: dict[str, Any] = json.loads(_MAP.read_text(encoding="utf-8"))
    names = list(held["seconds"])
    for lines in held["lines"].values():
        for line, tests in lines.items():
            lines[line] = [names[test] for test in tests]
    return held


def _write(held: dict[str, Any]) -> None:
    """Tests by their place among all, as most lines have hundreds."""
    places = {name: place for place, name in enumerate(held["seconds"])}
    short = {
        path: {line: [places[test] for test in tests] for line, tests in lines.items()} for path, lines in held["lines"].items()
    }
    _MAP.write_text(json.dumps({**held, "lines": short}), encoding="utf-8")


def _merged(held: dict[str, Any], gone: Sequence[str], measured: Sequence[str]) -> dict[str, Any]:
    """What is held, without what it says of some files of tests, and with what they say now."""
    _measure(measured)
    seconds, lines, at_import = _told()
    held["seconds"] = {test: took for test, took in held["seconds"].items() if test.partition("::")[0] not in gone} | seconds
    for path in modules():
        text = (ROOT / path).read_text(encoding="utf-8")
        now = {str(before): str(line) for line, before in _lines_of(held["texts"].get(path, ""), text).items()}
        known = {now[line]: tests for line, tests in held["lines"].get(path, {}).items() if line in now}
        module = lines.get(path, {})
        imported = {int(now[str(line)]) for line in held["at_import"].get(path, ()) if str(line) in now}
        held["texts"][path] = text
        held["at_import"][path] = sorted(imported | {*at_import.get(path, ())})
        held["lines"][path] = {
            line: sorted({test for test in known.get(line, ()) if test.partition("::")[0] not in gone} | {*module.get(line, ())})
            for line in {*known, *module}
        }
    return held


def _measure(files: Sequence[str]) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    config, report = BUILD / "coveragerc", BUILD / "tests.xml"
    include = "".join(f"\n    {pattern}" for pattern in MODULES)
    config.write_text(f"[run]\ninclude ={include}\ndata_file = {BUILD / 'map.coverage'}\n", encoding="utf-8")
    flags = ["--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report=", f"--junitxml={report}"]
    quiet = ["-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    paths = os.pathsep.join(str(ROOT / part) for part in ("auditor", "rules", "trainer"))  # of this tree, whatever is installed
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-m", "pytest", *quiet, *flags, *files], cwd=ROOT, env=environment)


def _told() -> tuple[dict[str, float], dict[str, dict[str, list[str]]], dict[str, list[int]]]:
    """What the measured run says: seconds of the tests that passed, tests of each line, lines that ran before any test."""
    from coverage import CoverageData

    seconds = {}
    for case in ElementTree.parse(BUILD / "tests.xml").iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            seconds[(case.get("classname", ""), case.get("name", ""))] = float(case.get("time", "0"))
    data = CoverageData(str(BUILD / "map.coverage"))
    data.read()
    times: dict[str, float] = {}
    lines: dict[str, dict[str, list[str]]] = {}
    at_import: dict[str, list[int]] = {}
    for path in modules():
        for line, contexts in data.contexts_by_lineno(str(ROOT / path)).items():
            if "" in contexts:
                at_import.setdefault(path, []).append(line)
            for context in contexts:
                test = context.rpartition("|")[0]
                file, _, name = test.partition("::")
                took = seconds.get((file.removesuffix(".py").replace("/", "."), name))
                if took is not None:
                    times[test] = took
                    lines.setdefault(path, {}).setdefault(str(line), []).append(test)
    return times, lines, at_import


def _files() -> list[Path]:
    parts = [ROOT / part for part in TESTS]
    return sorted(found for part in parts for found in ((part,) if part.is_file() else part.rglob("test_*.py")))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
