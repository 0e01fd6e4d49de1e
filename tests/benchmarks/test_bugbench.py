"""The benchmark of bugs for any tool: what its programs say of themselves, and, at night, what they show on real ranks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "bugbench"))

import intent
import prove


def test_each_blind_bug_has_a_twin_and_its_places_exist() -> None:
    every = intent.blind_programs()
    bugs = [program for program in every if program.kind == "bug"]
    assert len(bugs) == len(every) / 2 >= 12
    for bug in bugs:
        for name, line in bug.where:
            assert bug.path.with_name(name).read_text().splitlines()[line - 1].strip(), (bug.name, name, line)


def test_blind_programs_parse_and_are_of_realistic_size() -> None:
    for program in intent.blind_programs():
        files = sorted(program.path.parent.glob("*.py"))
        assert sum(len(path.read_text().splitlines()) for path in files) >= 40
        for path in files:
            ast.parse(path.read_text())


def test_a_bug_without_a_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("# class: wrong-data\n# source: https://example.org\n# outcome: hang all\n")
    with pytest.raises(intent.IntentError, match="where it is"):
        intent._read(path, "pair", "bug")


@pytest.mark.nightly
def test_blind_programs_show_what_they_say() -> None:
    assert prove.main([]) == 0
