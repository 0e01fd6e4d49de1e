"""Tables of reports, laid out by rich: columns as wide as what stands in them, without lines around them.

A table that is not at a terminal takes one line a row, whatever its width, so that other programs can read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_UNBOUNDED = 10_000  # columns: no line is folded


def table_lines(
    rows: Iterable[Sequence[str]],
    *,
    heads: Sequence[str] = (),
    right: Iterable[int] = (),
    indent: int = 0,
    width: int | None = None,
) -> list[str]:
    """Return the lines of a table. `right` are the numbers of the columns that are aligned there.

    With a `width` the last column is folded to it; without one each row is one line.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    if not rows:
        return []
    aligned = frozenset(right)
    table = Table(box=None, show_header=bool(heads), pad_edge=False, padding=(0, 2, 0, 0))
    last = max(map(len, rows)) - 1
    for number in range(last + 1):
        table.add_column(
            heads[number] if heads else "",
            justify="right" if number in aligned else "left",
            no_wrap=number < last,
            overflow="fold",
            header_style="",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(
        width=(width or _UNBOUNDED) - indent, color_system=None, highlight=False, emoji=False, markup=False, legacy_windows=False
    )
    with console.capture() as captured:
        console.print(table)
    return [" " * indent + line.rstrip() for line in captured.get().splitlines()]
