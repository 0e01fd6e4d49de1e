"""Waiting by rank and slow ranks, for people and as plain objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_audit.compare.verdict import DIVERGED, STALLED, Comparison
from ddp_audit.compare.waiting import Waiting
from ddp_audit.compare.waiting.explained import percent, straggler_text, time_text
from ddp_audit.report.tables import table_lines

_MOST_ROWS = 8
_MOST_GROUPS = 4
_HEADS = ("rank", "waited", "came last", "others waited for it")


def texts(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Paragraphs: a kind (`head`, `row`, `slow`), a text, and a style. Nothing where the ranks diverged and none is slow."""
    shown = [one for one in comparison.waiting if one.stragglers or comparison.verdict not in (DIVERGED, STALLED)]
    for one in sorted(shown, key=lambda group: not group.stragglers)[:_MOST_GROUPS]:
        group = "" if len(comparison.waiting) == 1 else f", {one.called or one.group}"
        title = f"Waiting by rank: {one.steps:,} steps{group}, {time_text(one.seconds / one.steps)} each"
        yield "head", title, "head"
        slow = {found.rank for found in one.stragglers}
        rows = [
            (str(rank), percent(one.share(rank)), f"{one.ranks[rank].last:,} times", time_text(one.ranks[rank].held_up))
            for rank in _rows(one)
        ]
        first, *lines = table_lines(rows, heads=_HEADS, right=range(len(_HEADS)), indent=2)
        yield "row", first, "dim"
        for rank, text in zip(_rows(one), lines, strict=True):
            yield "row", text, "warn" if rank in slow else ""
        left = len(one.ranks) - len(_rows(one))
        if left:
            yield "row", f"  and {left:,} more, which waited and were waited for less", "dim"
        for found in one.stragglers[:_MOST_ROWS]:
            yield "slow", f"Slow: {straggler_text(found, one)}", "warn"


def _rows(one: Waiting) -> list[int]:
    """The ranks that a table shows: all of a few, or else those that the others waited for most and that waited most."""
    if len(one.ranks) <= _MOST_ROWS:
        return sorted(one.ranks)
    by_cost = sorted(one.ranks, key=lambda rank: -one.ranks[rank].held_up)
    by_wait = sorted(one.ranks, key=lambda rank: -one.ranks[rank].waited)
    slow = [found.rank for found in one.stragglers]
    chosen = dict.fromkeys([*slow, *by_cost[: _MOST_ROWS // 2], *by_wait])
    return sorted(list(chosen)[:_MOST_ROWS])


def as_objects(waiting: list[Waiting]) -> list[dict[str, Any]]:
    """The value of `waiting`: one object a group that trains."""
    return [_object(one) for one in waiting]


def _object(one: Waiting) -> dict[str, Any]:
    return {
        "group": one.group,
        "steps": one.steps,
        "seconds": round(one.seconds, 6),
        "ranks": {
            str(rank): {
                "waited": round(waits.waited, 6),
                "share": round(one.share(rank), 4),
                "last": waits.last,
                "held_up": round(waits.held_up, 6),
                "phases": {phase: round(seconds, 6) for phase, seconds in one.own.get(rank, {}).items()},
            }
            for rank, waits in sorted(one.ranks.items())
        },
        "late": [
            {
                "site": None if place.site is None else str(place.site),
                "op": place.op,
                "count": place.count,
                "rank": place.rank,
                "times": place.times,
                "seconds": round(place.late, 6),
            }
            for place in one.places
        ],
        "slow": [
            {
                "rank": found.rank,
                "phase": found.phase,
                "phases": list(found.phases),
                "site": None if found.site is None else str(found.site),
                "share": round(found.share, 4),
                "seconds": round(found.seconds, 6),
                "explanation": straggler_text(found, one),
            }
            for found in one.stragglers
        ],
    }
