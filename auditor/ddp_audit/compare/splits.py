"""How much each rank sends to each other in an all_to_all or in a collective of lists of tensors, and how much that one expects.
Nothing in torch compares the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddp_audit.compare.explain import capital, place, rank_list
from ddp_audit.events import Event

UNEVEN = frozenset({"all_to_all", "all_to_all_single", "alltoall", "alltoall_base"})  # ranks may bring different sizes
LISTS = frozenset({"all_gather", "reduce_scatter", "gather", "scatter"})  # where their tensors are lists, the sizes in them count


class Apart(NamedTuple):
    """A rank that sends another one more or less than that one expects."""

    source: int
    target: int
    sent: int
    expected: int


def splits_apart(row: Mapping[int, Event], order: Sequence[int]) -> list[Apart]:
    """Where the ranks of one collective do not agree; empty where they do, or where a split is not known.

    `order` has the global ranks of the group."""
    if any(event.op not in UNEVEN and not (event.op in LISTS and shares_of(event)) for event in row.values()):
        return []
    if len({share for event in row.values() for share in (shares_of(event) or [()])}) == 1 and not _has_list(row):
        return []  # even and alike on all
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


def shares_of(event: Event) -> tuple[int | tuple[int, ...] | None, ...]:
    """What a rank sends and receives; empty where nothing is known of it."""
    found = tuple(_share(event.detail.get(key)) for key in ("sends", "receives"))
    return () if found == (None, None) else found


def _share(value: object) -> int | tuple[int, ...] | None:
    if isinstance(value, list):
        return tuple(value) if all(isinstance(one, int) for one in value) else None
    return value if isinstance(value, int) else None


def _has_list(row: Mapping[int, Event]) -> bool:
    return any(isinstance(share, tuple) for event in row.values() for share in shares_of(event))


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
    said = f"{capital(pairs)}{more}, in {'an' if event.op[0] in 'aeiou' else 'a'} {event.op} from {place(event)}."
    if event.op in LISTS:
        return (
            f"{said} The sizes of the tensors in the lists differ between the ranks. torch compares them within a rank at most: "
            "with gloo a rank fails or waits until the timeout, with NCCL the ranks hang or mix data. Exchange the sizes first, or "
            "pad all tensors to one size."
        )
    return (
        f"{said} The input split sizes of {rank_list(sources)} do not fit "
        "the output split sizes of the others. torch does not compare them: with gloo a rank fails, waits until the timeout or "
        "goes on with part of the data, with NCCL the ranks hang or mix data. Send the sizes first, with an all_to_all of their "
        "own, and take what arrives as the output split sizes."
    )


def _pair(one: Apart, what: str) -> str:
    if one.source == one.target:
        return f"rank {one.source} sends {one.sent:,} {what} to itself and expects {one.expected:,}"
    return f"rank {one.source} sends {one.sent:,} {what} to rank {one.target}, which expects {one.expected:,}"
