"""Some examples of the rules' pages and some cases on two real ranks: each shows what it says. `make cases` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from case import Program, programs
from judge import Shown
from run import judgement, page_programs, run_all

EVERY = 16  # one of so many case folders
EVERY_PAGE = 3  # one of so many rules


def sample() -> list[Program]:
    """The programs of some cases that need no more than two processes."""
    every = [program for program in programs() if program.started.torchrun and program.started.nnodes * program.started.nproc == 2]
    folders = sorted({program.path.parent for program in every})[::EVERY]
    return [program for program in every if program.path.parent in folders]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Program], dict[Path, Shown]]:
    """What was run, and what each program showed."""
    folder = tmp_path_factory.mktemp("runs")
    pages = page_programs(folder)
    codes = sorted({page.code for page in pages})[::EVERY_PAGE]
    chosen = [*(page for page in pages if page.code in codes), *sample()]
    return chosen, run_all(chosen, folder)


def test_every_program_shows_what_it_says(runs: tuple[list[Program], dict[Path, Shown]]) -> None:
    chosen, shown = runs
    bads = {program.path.parent: program for program in chosen if program.kind in ("bad", "page-bad")}
    wrong = {}
    for program in chosen:
        if program.runs:
            bad = bads.get(program.path.parent) if program.kind in ("fixed", "page-good") else None
            wrong |= {program.name: said} if (said := judgement(program, shown, bad)) else {}
    assert not wrong
    assert len(shown) > 40
