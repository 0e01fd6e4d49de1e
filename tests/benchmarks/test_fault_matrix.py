"""The table of the fault matrix, and that its program has each fault in one line."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from fault_matrix import KINDS, Outcome, line_of, page, positions, table


def test_each_kind_has_one_line_in_the_program() -> None:
    assert len({line_of(kind) for kind in KINDS}) == len(KINDS) == 12


def test_positions() -> None:
    assert positions(2) == {"first": 0, "second": 1, "middle": 1, "last": 1}
    assert positions(8) == {"first": 0, "second": 1, "middle": 4, "last": 7}


def test_the_table_counts_what_is_right() -> None:
    right = Outcome("lock", 2, "first", 0, "forked", (0,), True, 4.0)
    wrong = Outcome("lock", 2, "last", 1, "forked", (0, 1), False, 6.0)
    lost = Outcome("lock", 8, "last", 7, "torchrun", lost="the program ended with 1 before the fault")
    lines = list(table([right, wrong, lost]))
    assert lines[2:4] == ["| lock | 2 | 2 | 1 | 1 | 6.0, 6.0 |", "| lock | 8 | 1 | 0 | 0 | - |"]
    assert lines[-1] == "| all |  | 3 | 1 | 1 | 6.0, 6.0; 95 % within 6.0 |"
    assert wrong.said == "lock, 2 ranks, last (forked): blames [0, 1], another line"
    assert lost.said == "lock, 8 ranks, last (torchrun): the program ended with 1 before the fault"


def test_the_page_lists_what_is_not_right() -> None:
    text = page(
        [Outcome("lock", 2, "first", 0, "forked", (1,), True, 4.0), Outcome("sigkill", 2, "last", 1, "forked", (1,), False, 1.0)]
    )
    wrong, _, no_line = text.partition("another line than that of the fault")
    assert "- lock, 2 ranks, first (forked): blames [1], its line" in wrong
    assert "- sigkill, 2 ranks, last (forked): blames [1], another line" in no_line
