"""A frame of `ddp-audit top`: as plain lines, as one line, and as a table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddp_audit.compare.explain import counted, rank_list
from ddp_audit.compare.run import MISSING
from ddp_audit.compare.verdict import AGREED, INCOMPLETE
from ddp_audit.compare.waiting.explained import percent, straggler_text, time_text
from ddp_audit.report.columns import cut
from ddp_audit.report.summary import lines_of
from ddp_audit.report.tables import table_lines
from ddp_audit.report.trace_text import headline
from ddp_audit.trace.status import RankStatus, Status

if TYPE_CHECKING:
    from rich.console import Group

MOST_ROWS = 16


def head(status: Status) -> str:
    """The run in one line: its time, steps and rate."""
    minutes, seconds = divmod(int(status.seconds), 60)
    rate = "" if status.rate is None else f", {status.rate:.3g} steps/s"
    state = "ended" if status.ended else "running"
    return f"{counted(len(status.ranks), 'rank')}, {state}, {minutes}:{seconds:02d}, step {status.steps:,}{rate}"


def verdict(status: Status) -> str:
    """The newest verdict: a divergence or a stall, else a slow rank, else a silent fault, else that the ranks agree."""
    comparison = status.comparison
    if comparison.verdict not in (AGREED, INCOMPLETE):
        return headline(comparison).text
    missing = [one.rank for one in status.ranks if one.state == MISSING]
    if missing and not status.ended:
        return f"{rank_list(missing).capitalize()} left no trace so far."
    if status.slow:
        return straggler_text(*status.slow[0])
    if comparison.silent:
        fault = comparison.silent[0]
        return f"Silent fault {fault.kind}: {fault.explanation}"
    if status.ended:
        return headline(comparison).text
    return "The ranks agree so far."


def rows(status: Status) -> list[RankStatus]:
    """The ranks that are shown: all of a few, or else the slow ones and those that wait least and most."""
    if len(status.ranks) <= MOST_ROWS:
        return status.ranks
    slow = {found.rank for found, _ in status.slow}
    order = sorted(status.ranks, key=lambda one: (one.rank not in slow, one.share if one.share is not None else 2.0))
    chosen = {one.rank for one in (*order[: MOST_ROWS // 2], *order[-MOST_ROWS // 2 :])}
    return [one for one in status.ranks if one.rank in chosen]


def cells(one: RankStatus) -> tuple[str, str, str, str, str]:
    """Rank, state, steps, the waiting share, and what it is in."""
    share = "" if one.share is None else percent(one.share)
    since = "" if one.since is None else f"{time_text(one.since)} in "
    return str(one.rank), one.state, f"{one.steps:,}", share, f"{since}{lines_of(one.doing)}"


HEADS = ("rank", "state", "steps", "waits", "in, or last")


def plain(status: Status, width: int) -> list[str]:
    """The frame as lines."""
    out = [head(status), *table_lines(map(cells, rows(status)), heads=HEADS, right=(0, 2, 3), indent=2)]
    left = len(status.ranks) - len(rows(status))
    if left:
        out.append(f"  and {counted(left, 'more rank')}")
    return [cut(line, width) for line in out] + [lines_of(verdict(status))]


def line(status: Status) -> str:
    """The frame as one line."""
    waits = [f"rank {one.rank} {percent(one.share)}" for one in rows(status) if one.share is not None]
    under = [f"rank {one.rank} in {one.doing}" for one in rows(status) if one.since is not None and one.since > 1]
    parts = [head(status), f"waiting: {', '.join(waits)}" if waits else "", "; ".join(under[:4]), verdict(status)]
    return " | ".join(lines_of(part) for part in parts if part)


def drawn(status: Status) -> Group:
    """The frame for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True)
    for name, justify in zip(HEADS, ("right", "left", "right", "right", "left"), strict=True):
        table.add_column(name, justify=justify, no_wrap=name != HEADS[-1], overflow="ellipsis")  # type: ignore[arg-type]
    slow = {found.rank for found, _ in status.slow}
    for one in rows(status):
        table.add_row(*map(Text, cells(one)), style="yellow" if one.rank in slow else "")
    left = len(status.ranks) - len(rows(status))
    more = [Text(f"and {counted(left, 'more rank')}", "dim")] if left else []
    bad = status.comparison.verdict not in (AGREED, INCOMPLETE)
    return Group(Text(head(status), "bold"), table, *more, Text(verdict(status), "bold red" if bad else "yellow" if slow else ""))
