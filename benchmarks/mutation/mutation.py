"""Mutants of what must not be wrong, each tested by the tests that run its line: `make mutation PIECE=1`.

The predicted run's interpreter, the comparison and the reading of traces are changed at one place at a time. A mutant that no test
notices shows a line of which nothing is known: it gets a test, or it goes, or, where it means the same as the code, a line in
`same_meaning.tsv`. A mutant is tested in a copy of the tree, by the tests that run its line, the quickest first and until the first
that fails without failing on the code as it is; a test that takes many times its time has noticed it too.

Exits with 1 where more than 5 of 100 mutants went unnoticed. `--again` tests only those again that went unnoticed before.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from coverage_map import BUILD, TESTS, CoverageMap
from living import TOO_LONG as TOOK_TOO_LONG
from living import Change, Living, changed_file, exchange, limit_and_redirect, waited_for
from mutants import ROOT, Mutant, find, modules, same_meaning, sample

NOTICED, UNNOTICED, TOO_LONG, NOT_RUN, SAME, GONE = "noticed", "unnoticed", "too long", "not run", "same meaning", "line gone"
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
_ROUNDS = ((4.0, "not traced"), (25.0, "not traced"), (120.0, "traced"))
_QUICK_ROUNDS = 2
_QUIET = ("-q", "-s", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:xdist", "--rootdir")
_AIM = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Which mutants of the interpreter, the comparison and the trace reading tests notice."
    )
    parser.add_argument("--of", type=int, default=200, help="how many pieces all mutants make (200: about 36 mutants each)")
    parser.add_argument("--piece", type=int, nargs="+", help="which of them; without it, that of the day")
    parser.add_argument("--only", default="", help="of these, the modules with this in their path")
    parser.add_argument("--sample", type=int, default=1, help="the number of the sample that these pieces belong to, for the page")
    parser.add_argument("--again", action="store_true", help="those again that went unnoticed before, in all pieces")
    parser.add_argument("--anew", action="store_true", help="measure first which test runs which line")
    parser.add_argument("--quick", action="store_true", help="leave out the tests that start ranks")
    parser.add_argument("--write", action="store_true", help="write mutation.md from all outcomes of this tree")
    options = parser.parse_args(arguments)
    tests = CoverageMap(options.anew)
    pieces = options.piece or [datetime.date.today().toordinal() % options.of + 1]
    if options.again:
        chosen = _unnoticed_before()
    else:
        known = {(entry["module"], entry["before"], entry["after"]) for entry in _known()}
        chosen = [mutant for mutant in sample(pieces, options.of) if options.only in mutant.module]
        chosen = [mutant for mutant in chosen if mutant.key not in known or len(pieces) == 1]
    run = _MutationRun(tests, _ROUNDS[:_QUICK_ROUNDS] if options.quick else _ROUNDS, options.sample)
    run.test(chosen)
    if options.write:
        _PAGE.write_text(_page(_known()), encoding="utf-8")
    counts = Counter(run.outcomes.values())
    left = counts[UNNOTICED] + counts[NOT_RUN]
    told = sum(counts.values()) - counts[SAME]
    print(f"{told} mutants, {left} unnoticed; {counts[SAME]} more mean the same as the code")
    return int(left > _AIM * told)


class _MutationRun:
    """Tests mutants: most in forks of one process, then those that change what runs at import, each in a process of its own."""

    def __init__(self, tests: CoverageMap, rounds: Sequence[tuple[float, str]], number: int) -> None:
        self.outcomes: dict[Mutant, str] = {}
        self._tests, self._rounds, self._number = tests, rounds, number

    def test(self, mutants: Sequence[Mutant]) -> None:
        with _copy_of_the_tree() as tree:
            self._tree = tree
            os.chdir(tree)
            _import_what_is_slow()
            sys.path[:0] = paths = [str(tree / part) for part in ("auditor", "rules", "trainer")]
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for the processes that tests start
            sys.dont_write_bytecode = True
            self._inside: list[tuple[Mutant, Change]] = []
            apart: list[tuple[Mutant, Sequence[tuple[str, float]]]] = []
            for mutant in mutants:
                covering = self._tests.tests_of(mutant.module, mutant.first, mutant.last)
                if mutant.key in same_meaning():
                    self._told(mutant, SAME, "")
                elif not covering:
                    self._told(mutant, NOT_RUN, "")
                elif (change := self._exchangeable(mutant)) is not None:
                    self._inside.append((mutant, change))
                else:
                    apart.append((mutant, covering))
            if self._inside:
                self._in_a_child_that_collects()
            for mutant, covering in apart:
                with changed_file(tree / mutant.module, mutant.code()):
                    self._told(mutant, *self._in_a_process_of_its_own(covering))

    def _in_a_child_that_collects(self) -> None:
        """Test what can be exchanged. This process imports nothing of the audited package, for what comes after."""
        child = os.fork()
        if not child:
            code = 3
            try:
                code = int(pytest.main([*_QUIET, str(self._tree), *TESTS], [Living(self._tree, self._in_forks)]))
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            raise SystemExit(f"the tests cannot be collected without a mutant: pytest ends with {code}")
        told = {(entry["module"], entry["before"], entry["after"]): entry["outcome"] for entry in _known()}
        self.outcomes |= {mutant: told[mutant.key] for mutant, _ in self._inside}

    def _exchangeable(self, mutant: Mutant) -> Change | None:
        if self._tests.runs_at_import(mutant.module, mutant.first, mutant.last):
            return None
        after = mutant.code()
        codes = exchange(self._tree / mutant.module, (ROOT / mutant.module).read_text(encoding="utf-8"), after)
        return None if codes is None else Change(mutant.module, after, codes)

    def _in_forks(self, living: Living) -> None:
        for mutant, change in self._inside:
            covering = self._tests.tests_of(mutant.module, mutant.first, mutant.last)
            known = [pair for pair in covering if living.knows(pair[0])]
            outcome, by = UNNOTICED, ""
            for limit, which in self._rounds:
                chosen = _within(limit, [pair for pair in known if living.is_traced(pair[0]) == (which == "traced")])
                known = [pair for pair in known if pair not in chosen]
                found = living.noticed_by(change, chosen) if chosen else None
                if found is not None:
                    outcome, by = (TOO_LONG, "") if found == TOOK_TOO_LONG else (NOTICED, str(found))
                    break
            self._told(mutant, outcome, by)

    def _in_a_process_of_its_own(self, covering: Sequence[tuple[str, float]]) -> tuple[str, str]:
        left = list(covering)
        for limit, which in self._rounds:
            chosen = _within(limit, left)
            if which != "traced":
                left = [pair for pair in left if pair not in chosen]
            code = self._pytest([name for name, _ in chosen], which, sum(seconds for _, seconds in chosen)) if chosen else 0
            if code != 0:
                return (TOO_LONG if code is None else NOTICED), ""
        return UNNOTICED, ""

    def _pytest(self, names: Sequence[str], which: str, seconds: float) -> int | None:
        """The exit code of pytest for some tests; None where it took too long. 5, no test there, counts as 0."""
        child = os.fork()
        if not child:
            code = 3
            try:
                limit_and_redirect(self._tree, seconds)
                code = int(pytest.main([*_QUIET, str(self._tree), "-x", "-m", which, *names]))
            finally:
                os._exit(code)
        ended = waited_for(child, seconds)
        return None if ended == -signal.SIGXCPU else 0 if ended == 5 else ended

    def _told(self, mutant: Mutant, outcome: str, by: str) -> None:
        self.outcomes[mutant] = outcome
        where = f"{mutant.module}:{mutant.first}"
        print(f"{outcome:12} {where}  {mutant.before}  ->  {mutant.after}{'  by ' + by if by else ''}", flush=True)
        _keep(mutant, outcome, self._number)


def _within(limit: float, tests: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The quickest tests that take no longer than this together, one at least; those of a file one after another."""
    chosen: list[tuple[str, float]] = []
    spent = 0.0
    for name, seconds in tests:
        if chosen and spent + seconds > limit:
            continue
        chosen.append((name, seconds))
        spent += seconds
    files = {name.partition("::")[0]: place for place, (name, _) in reversed(list(enumerate(chosen)))}
    return sorted(chosen, key=lambda pair: files[pair[0].partition("::")[0]])


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
        os.chdir(ROOT)


def _known() -> list[dict[str, Any]]:
    return list(json.loads(_OUTCOMES.read_text(encoding="utf-8"))) if _OUTCOMES.is_file() else []


def _keep(mutant: Mutant, outcome: str, number: int) -> None:
    """Add an outcome to those that are known, for the page and for `--again`. Pieces may run beside each other."""
    import fcntl

    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _known()
        same = [entry for entry in known if (entry["module"], entry["before"], entry["after"]) == mutant.key]
        first, number = (same[0]["first_outcome"], same[0]["sample"]) if same else (outcome, number)
        known = [entry for entry in known if entry not in same]
        known.append({**asdict(mutant), "outcome": outcome, "first_outcome": first, "sample": number})
        _OUTCOMES.write_text(json.dumps(known, indent=1), encoding="utf-8")


def _unnoticed_before() -> list[Mutant]:
    """What went unnoticed, as far as it can still be made: also where its line has moved to another module of the room."""
    found = []
    for entry in _known():
        if entry["outcome"] not in (UNNOTICED, NOT_RUN):
            continue
        room = Path(entry["module"]).parent
        places = (entry["module"], *(path for path in modules() if Path(path).parent == room))
        made = (find(path, entry["operator"], entry["before"], entry["after"]) for path in places)
        mutant = next((one for one in made if one is not None), None)
        if mutant is None:
            _change(entry, outcome=GONE)
        else:
            _change(entry, module=mutant.module)
            found.append(mutant)
    return found


def _change(entry: dict[str, Any], **changes: str) -> None:
    known = [{**one, **changes} if one == entry else one for one in _known()]
    _OUTCOMES.write_text(json.dumps(known, indent=1), encoding="utf-8")


def _page(known: Sequence[dict[str, Any]]) -> str:
    rooms = {"explore/exact": "the predicted run's interpreter", "compare": "the comparison", "trace": "reading of traces"}
    lines = [
        "# Mutation run",
        "",
        "`make mutation` wrote this page. One change at one place of the code at a time; noticed: a test that runs the line",
        "fails, or takes many times its time. Each sample is drawn from all places and shares no mutant with those before. First:",
        "when the mutant was first tested, before tests were written for what its sample left unnoticed. Left: when it was",
        "tested last (`--again` tests again what went unnoticed). Without the tests that start ranks, where `--quick` was given.",
        "Line gone: its code was written anew or deleted since. Shares are of those that mean something else than the code.",
        "",
        "| sample | part | mutants | same meaning | unnoticed first | | line gone | left | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number in sorted({entry["sample"] for entry in known}):
        sampled = [entry for entry in known if entry["sample"] == number]
        for room, name in rooms.items():
            lines.append(_row(number, name, [entry for entry in sampled if f"/{room}/" in entry["module"]]))
        lines.append(_row(number, "together", sampled))
    left = [entry for entry in known if entry["outcome"] in (UNNOTICED, NOT_RUN)]
    if left:
        lines += ["", "## Left", ""]
        lines += [f"- `{entry['module']}`: `{entry['before']}` became `{entry['after']}` ({entry['outcome']})" for entry in left]
    return "\n".join(lines) + "\n"


def _row(number: int, name: str, entries: Sequence[dict[str, Any]]) -> str:
    same = sum(entry["outcome"] == SAME for entry in entries)
    told = len(entries) - same
    counts = []
    for when in ("first_outcome", "outcome"):
        left = sum(entry[when] in (UNNOTICED, NOT_RUN) and entry["outcome"] != SAME for entry in entries)
        counts += [str(left), f"{left / told:.1%}" if told else ""]
    gone = sum(entry["outcome"] == GONE for entry in entries)
    return f"| {number} | {name} | {len(entries)} | {same} | {' | '.join([*counts[:2], str(gone), *counts[2:]])} |"


if __name__ == "__main__":
    raise SystemExit(main())
