"""How much each rank sends to each other in an all_to_all, and how much that one expects. Nothing in torch compares the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddp_audit.compare.explain import capital, place, rank_list
from ddp_audit.events import Event

UNEVEN = frozenset({"all_to_all", "all_to_all_single", "alltoall", "alltoall_base"})


class Apart(NamedTuple):
    """A rank that sends another one more or less than that one expects."""

    source: int
    target: int
    sent: int
    expected: int


def splits_apart(row: Mapping[int, Event], order: Sequence[int]) -> list[Apart]:
    """Where the ranks of one collective do not agree; empty where they do, or where a split is not known.

    `order` has the global ranks of the group."""
    if any(event.op not in UNEVEN for event in row.values()):
        return []
    sends = {rank: _shares(event.detail.get("sends"), len(order)) for rank, event in row.items()}
    receives = {rank: _shares(event.detail.get("receives"), len(order)) for rank, event in row.items()}
    found = []
    for i, source in enumerate(order):
        mine = sends.get(source)
        for j, target in enumerate(order) if mine is not None else ():
            theirs = receives.get(target)
            if mine is not None and theirs is not None and mine[j] != theirs[i]:
                found.append(Apart(source, target, mine[j], theirs[i]))
    return found


def _shares(value: object, ranks: int) -> Sequence[int] | None:
    if isinstance(value, int):
        return [value] * ranks
    return value if isinstance(value, list) and len(value) == ranks and all(isinstance(one, int) for one in value) else None


def explanation(found: Sequence[Apart], row: Mapping[int, Event]) -> str:
    """What to say of it."""
    first = found[0]
    event = row[first.source]
    pairs = "; ".join(_pair(one, event.dtype or "elements") for one in found[:3])
    more = f"; and {len(found) - 3:,} more pairs" if len(found) > 3 else ""
    sources = sorted({one.source for one in found})
    return (
        f"{capital(pairs)}{more}, in an {event.op} from {place(event)}. The input split sizes of {rank_list(sources)} do not fit "
        "the output split sizes of the others. torch does not compare them: with gloo a rank fails, waits until the timeout or "
        "goes on with part of the data, with NCCL the ranks hang or mix data. Send the sizes first, with an all_to_all of their "
        "own, and take what arrives as the output split sizes."
    )


def _pair(one: Apart, what: str) -> str:
    if one.source == one.target:
        return f"rank {one.source} sends {one.sent:,} {what} to itself and expects {one.expected:,}"
    return f"rank {one.source} sends {one.sent:,} {what} to rank {one.target}, which expects {one.expected:,}"
