"""The benchmark of bugs for any tool: what its programs say of themselves, and, at night, what they show on real ranks."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "bugbench"))

import bugbench
import intent
import prove
import suite
from static_tools import Report, Tool


def test_each_blind_bug_has_a_twin_and_its_places_exist() -> None:
    every = intent.own_programs("blind")
    bugs = [program for program in every if program.kind == "bug"]
    assert len(bugs) == len(every) / 2 >= 12
    for bug in bugs:
        for name, line in bug.where:
            assert bug.path.with_name(name).read_text().splitlines()[line - 1].strip(), (bug.name, name, line)


def test_blind_programs_parse_and_are_of_realistic_size() -> None:
    for program in intent.own_programs("blind"):
        files = sorted(program.path.parent.glob("*.py"))
        assert sum(len(path.read_text().splitlines()) for path in files) >= 40
        for path in files:
            ast.parse(path.read_text())


def test_every_part_has_programs_that_say_what_is_right() -> None:
    every = suite.every_program()
    assert {program.part for program in every} == set(suite.PARTS)
    assert {program.group for program in every} <= set(intent.CLASSES)
    for program in every:
        assert program.path.is_file()
        if program.kind == "bug" and program.part in ("reports", "cases"):
            assert program.where, program.name
    assert {program.effect for program in every if program.kind == "bug"} == {"hang", "abort", "silent"}


def pair(where: set[tuple[str, int]]) -> list[intent.Intent]:
    def one(kind: str) -> intent.Intent:
        places = frozenset(where) if kind == "bug" else frozenset()
        return intent.Intent(Path(kind, "train.py"), "blind", "pair", kind, "wrong-data", (), places)

    return [one("bug"), one("twin")]


def said(rule: str, line: int, kind: str = "bug") -> Report:
    return Report(rule, frozenset({(Path(kind, "train.py"), line)}))


def test_a_report_that_the_twin_gets_too_finds_no_bug() -> None:
    bug, twin = pair({("train.py", 5)})
    tool = Tool("a tool", reports={bug.path: [said("style", 5)], twin.path: [said("style", 5, "twin")]})
    result = bugbench.score(tool, [bug, twin])
    assert (result.found, result.flagged, result.noise) == (0, 1, 1)
    tool.reports[bug.path].append(said("style", 5))
    assert bugbench.score(tool, [bug, twin]).found == 1


def test_a_report_elsewhere_finds_the_bug_and_is_noise() -> None:
    bug, twin = pair({("train.py", 5)})
    tool = Tool("a tool", reports={bug.path: [said("rule", 9)], twin.path: []})
    result = bugbench.score(tool, [bug, twin])
    assert (result.recall, result.precision, result.line_precision, result.noise) == (1.0, 1.0, 0.0, 1)


def test_results_that_are_kept_are_read_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = intent.own_programs("blind")[0].path
    tool = Tool("a tool", "1.0", "", {path: [Report("rule", frozenset({(path, 3)}))]})
    monkeypatch.setattr(bugbench, "RESULTS", tmp_path / "results.json")
    bugbench.RESULTS.write_text(json.dumps(bugbench.kept_reports([tool])))
    assert bugbench.read_kept() == [tool]


def test_a_bug_without_a_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("# class: wrong-data\n# source: https://example.org\n# outcome: hang all\n")
    with pytest.raises(intent.IntentError, match="where it is"):
        intent._read(path, "blind", "pair", "bug")


@pytest.mark.nightly
def test_programs_show_what_they_say() -> None:
    assert prove.main([]) == 0
