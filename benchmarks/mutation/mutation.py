"""Mutants of what must not be wrong, each tested by the tests that run its line: `make mutation PIECE=1`.

The predicted run's interpreter, the comparison and the reading of traces are changed at one place at a time. A mutant that no test
notices shows a line of which nothing is known: it gets a test, or it goes, or, where it means the same as the code, a line in
`same_meaning.tsv`. A mutant is tested in a copy of the tree, by a process that was forked once everything slow was imported, by the
quickest tests first and until the first that fails; a test that takes many times its time has noticed it too.

Exits with 1 where more than 5 of 100 mutants went unnoticed. `--again` tests only those again that went unnoticed before.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from coverage_map import BUILD, TESTS, CoverageMap
from mutants import ROOT, Mutant, find, same_meaning, sample

NOTICED, UNNOTICED, TOO_LONG, NOT_RUN, SAME = "noticed", "unnoticed", "too long", "not run", "same meaning"
_OUTCOMES = BUILD / "outcomes.json"
_PAGE = Path(__file__).resolve().parent / "mutation.md"
_PARTS = (
    "auditor",
    "rules",
    "trainer",
    "tests",
    "docs",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "action.yml",
    "mkdocs.yml",
)
# Rounds of tests: seconds that they take by the map, and which of them. Most mutants are noticed in the first. Tests that start
# ranks come last: they cost far more than the map says, as it counts what several of them share once.
_ROUNDS = ((3.0, "not traced"), (8.0, "not traced"), (120.0, "traced"))
_QUICK_ROUNDS = 2
_MOST_MEMORY = 6 << 30
_AIM = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Which mutants of the interpreter, the comparison and the trace reading tests notice."
    )
    parser.add_argument("--of", type=int, default=200, help="how many pieces all mutants make (200: about 36 mutants each)")
    parser.add_argument("--piece", type=int, help="which of them; without it, that of the day")
    parser.add_argument("--again", action="store_true", help="those again that went unnoticed before, in all pieces")
    parser.add_argument("--anew", action="store_true", help="measure first which test runs which line")
    parser.add_argument("--quick", action="store_true", help="leave out the tests that start ranks")
    parser.add_argument("--write", action="store_true", help="write mutation.md from all outcomes of this tree")
    options = parser.parse_args(arguments)
    tests = CoverageMap(options.anew)
    piece = options.piece or datetime.date.today().toordinal() % options.of + 1
    chosen = _unnoticed_before() if options.again else sample(piece, options.of)
    outcomes = {}
    with _copy_of_the_tree() as tree:
        _import_what_is_slow()
        if _run(["--collect-only", *TESTS], "", tree, 60.0) != 0:
            print((tree / "output.txt").read_text(encoding="utf-8", errors="replace"))
            raise SystemExit("the tests cannot be collected without a mutant")
        for mutant in chosen:
            outcomes[mutant] = _outcome(mutant, tests, tree, _ROUNDS[:_QUICK_ROUNDS] if options.quick else _ROUNDS)
            place = f"{mutant.module}:{mutant.first}"
            print(f"{outcomes[mutant]:12} {place}  {mutant.before}  ->  {mutant.after}", flush=True)
            _keep(mutant, outcomes[mutant], piece)
    if options.write:
        _PAGE.write_text(_page(json.loads(_OUTCOMES.read_text(encoding="utf-8"))), encoding="utf-8")
    counts = Counter(outcomes.values())
    left = counts[UNNOTICED] + counts[NOT_RUN]
    told = sum(counts.values()) - counts[SAME]
    print(f"{told} mutants, {left} unnoticed; {counts[SAME]} more mean the same as the code")
    return int(left > _AIM * told)


def _outcome(mutant: Mutant, tests: CoverageMap, tree: Path, rounds: Sequence[tuple[float, str]]) -> str:
    if mutant.key in same_meaning():
        return SAME
    covering = tests.tests_of(mutant.module, mutant.first, mutant.last)
    if not covering:
        return NOT_RUN
    with _mutated(mutant, tree):
        done: dict[str, int] = Counter()
        for limit, which in rounds:
            names, spent = [], 0.0
            for name, seconds in covering[done[which] :]:
                if names and spent + seconds > limit:
                    break
                names.append(name)
                spent += seconds
            done[which] += len(names)
            if names and (code := _run(names, which, tree, spent)) != 0:
                return TOO_LONG if code is None else NOTICED
    return UNNOTICED


def _run(names: Sequence[str], which: str, tree: Path, seconds: float) -> int | None:
    """The exit code of pytest for some tests; None where it took too long. 5, no test there, counts as 0."""
    child = os.fork()
    if not child:
        _be_pytest(names, which, tree, seconds)
    until = time.monotonic() + 120 + 20 * seconds  # other work may hold the machine; the limit that counts is that of CPU seconds
    code: int | None = None
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return None if code == -signal.SIGXCPU else 0 if code == 5 else code


def _be_pytest(names: Sequence[str], which: str, tree: Path, seconds: float) -> None:
    code = 3
    try:
        os.setsid()
        os.chdir(tree)
        cpu = int(30 + 6 * seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
        paths = [str(tree / part) for part in ("auditor", "rules", "trainer")]
        sys.path[:0] = paths
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for the processes that tests start
        sys.dont_write_bytecode = True
        with (tree / "output.txt").open("wb", buffering=0) as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        import pytest

        quiet = [
            "-x",
            "-q",
            "--no-header",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:cov",
            "-p",
            "no:xdist",
            "-m",
            which,
            "--rootdir",
            str(tree),
        ]
        code = int(pytest.main([*quiet, *names]))
    finally:
        os._exit(code)


def _import_what_is_slow() -> None:
    """Import into the process that is forked from, but nothing of the audited package."""
    for name in (
        "hypothesis",
        "jsonschema",
        "libcst",
        "libcst.metadata",
        "networkx",
        "numpy",
        "pyarrow",
        "pytest",
        "rich.console",
        "torch.distributed",
        "yaml",
    ):
        with contextlib.suppress(ImportError):
            __import__(name)
    assert "ddp_audit" not in sys.modules


@contextmanager
def _copy_of_the_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        for part in _PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, tree / part)
            elif (ROOT / part).is_file():
                shutil.copy2(ROOT / part, tree / part)
        yield tree


@contextmanager
def _mutated(mutant: Mutant, tree: Path) -> Iterator[None]:
    file = tree / mutant.module
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    try:
        file.write_text(mutant.code(), encoding="utf-8")
        yield
    finally:
        shutil.copy2(ROOT / mutant.module, file)


def _keep(mutant: Mutant, outcome: str, piece: int) -> None:
    """Add an outcome to those that are known, for the page and for `--again`. Pieces may run beside each other."""
    import fcntl

    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(_OUTCOMES.read_text(encoding="utf-8")) if _OUTCOMES.is_file() else []
        same = [entry for entry in known if (entry["module"], entry["before"], entry["after"]) == mutant.key]
        first = same[0]["first_outcome"] if same else outcome
        known = [entry for entry in known if entry not in same]
        known.append({**asdict(mutant), "outcome": outcome, "first_outcome": first, "piece": same[0]["piece"] if same else piece})
        _OUTCOMES.write_text(json.dumps(known, indent=1), encoding="utf-8")


def _unnoticed_before() -> list[Mutant]:
    """What went unnoticed, as far as it can still be made."""
    known = json.loads(_OUTCOMES.read_text(encoding="utf-8"))
    wanted = [entry for entry in known if entry["outcome"] in (UNNOTICED, NOT_RUN)]
    found = (find(entry["module"], entry["operator"], entry["before"], entry["after"]) for entry in wanted)
    return [mutant for mutant in found if mutant is not None]


def _page(known: Sequence[dict[str, object]]) -> str:
    rooms = {"explore/exact": "the predicted run's interpreter", "compare": "the comparison", "trace": "reading of traces"}
    lines = [
        "# Mutation run",
        "",
        "`make mutation` wrote this page. One change at one place of the code at a time; noticed: a test that runs the line fails,",
        "or takes many times its time. First: before tests were written for what went unnoticed. Left: unnoticed now.",
        "With `--quick` the tests that start ranks are left out, as in the first 51 mutants: some of what is left they may notice.",
        "",
        "| part | mutants | same meaning | unnoticed first | left | left of those that mean something else |",
        "|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for room, name in rooms.items():
        mine = [entry for entry in known if f"/{room}/" in str(entry["module"])]
        counts = Counter(str(entry["outcome"]) for entry in mine)
        row: Counter[str] = Counter(
            mutants=len(mine),
            same=counts[SAME],
            first=sum(entry["first_outcome"] in (UNNOTICED, NOT_RUN) for entry in mine),
            left=counts[UNNOTICED] + counts[NOT_RUN],
        )
        total.update(row)
        lines.append(_row(name, row))
    lines.append(_row("together", total))
    left = [entry for entry in known if entry["outcome"] in (UNNOTICED, NOT_RUN)]
    if left:
        lines += ["", "## Left", ""]
        lines += [f"- `{entry['module']}`: `{entry['before']}` became `{entry['after']}` ({entry['outcome']})" for entry in left]
    return "\n".join(lines) + "\n"


def _row(name: str, row: Counter[str]) -> str:
    told = row["mutants"] - row["same"]
    share = f"{row['left'] / told:.1%}" if told else ""
    return f"| {name} | {row['mutants']} | {row['same']} | {row['first']} | {row['left']} | {share} |"


if __name__ == "__main__":
    raise SystemExit(main())
