"""Tables: one line a row in a pipe, folded in the last column at a terminal, whatever the width of letters."""

from __future__ import annotations

from ddp_audit.report.columns import width_of
from ddp_audit.report.tables import table_lines

ROWS = [("a", "12", "one two three four five six seven"), ("long name", "3", "[bold]short[/bold] :smile:")]


def test_a_row_is_a_line_where_no_width_is_given() -> None:
    lines = table_lines([*ROWS, ("b", "4", "word " * 300)], heads=("name", "n", "what"), right=[1], indent=2)
    assert lines[:3] == [
        "  name        n  what",
        "  a          12  one two three four five six seven",
        "  long name   3  [bold]short[/bold] :smile:",
    ]
    assert len(lines) == 4 and len(lines[3]) > 1_500


def test_the_last_column_is_folded_to_a_width() -> None:
    lines = table_lines(ROWS, width=30)
    assert max(map(len, lines)) <= 30 and lines[0].startswith("a          12  one two")
    assert lines[1].startswith(" " * 15) and " ".join(" ".join(lines[:3]).split()).startswith("a 12 one two three four five")


def test_letters_of_two_columns_count_twice() -> None:
    first, second = table_lines([("漢字", "x"), ("abcd", "y")])
    assert width_of(first[: first.index("x")]) == second.index("y")


def test_no_rows_are_no_lines() -> None:
    assert table_lines([], heads=("name",)) == []
