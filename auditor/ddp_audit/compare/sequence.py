"""What a comparison works on: the collectives of one group on each rank, and the arguments that torch needs to be equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ddp_audit.compare.explain import BARRIERS
from ddp_audit.compare.group_names import GroupFacts, group_text
from ddp_audit.compare.splits import UNEVEN
from ddp_audit.events import DDP_BUFFERS, OBJECT, ROOTED, SYNC_BATCHNORM, USER, Event, Site

Key = tuple[str, int]  # a group's name, and how many groups of that name were destroyed before it
Signature = tuple[str | None, int | None, str | None, int | None, str | None]  # op, numel, dtype, root, reduce op
KINDS = ("operation", "size", "dtype", "root", "reduce-op")  # the kind of a mismatch by the first field that differs


class Entry(NamedTuple):
    """One collective of one rank, with the DDP forward before it and its position among all the rank's collectives."""

    event: Event
    forward: Event | None
    ordinal: int

    @property
    def grad(self) -> bool | None:
        """Whether the forward that made this collective ran with gradients; None where no forward made it, or unknown."""
        if self.event.origin not in (DDP_BUFFERS, SYNC_BATCHNORM) or self.forward is None:
            return None
        return self.forward.detail.get("grad")

    @property
    def own_forward(self) -> Event | None:
        """The forward before a collective of torch's own; None for a call of the user's."""
        return None if self.event.origin in (USER, OBJECT) else self.forward


@dataclass(slots=True)
class Divergence:
    """Ranks that part in one collective of a group (or, for `crossed`, meet from different places).

    `ranks` holds each rank's event, None for a rank that has none there. `odd` is the minority where three or more ranks
    allow a strict majority, else empty. `forwards` has, for torch's own collectives, the forward that they belong to. `count`
    is how often a crossed pair of places was seen. `before` has the last collectives of the group before this one.

    Where messages part, `message` has the ranks of sender and receiver, `index` is its number in order from the one to the other,
    and `positions` says where among the events of each rank it stands. `called` has what people know of groups, by name.
    """

    group: str
    index: int
    kind: str
    ranks: dict[int, Event | None]
    odd: list[int] = field(default_factory=list)
    explanation: str = ""
    count: int = 1
    forwards: dict[int, Event | None] = field(default_factory=dict)
    before: list[tuple[int, dict[int, Event]]] = field(default_factory=list)
    message: tuple[int, int] | None = None
    positions: dict[int, int] = field(default_factory=dict)
    called: Mapping[str, GroupFacts] = field(default_factory=dict, repr=False, compare=False)

    def group_text(self, name: str | None = None) -> str:
        """Its group, or another one, in a sentence."""
        return group_text(self.group if name is None else name, self.called)

    @property
    def is_notice(self) -> bool:
        """Whether the run goes on: `crossed` is reported, but is not a divergence."""
        return self.kind == "crossed"


@dataclass(slots=True)
class Crossing:
    """A set of places from which ranks met: the first time (index and, per place, its ranks and one entry), and how often."""

    index: int
    parts: list[tuple[list[int], Entry]]
    count: int = 1


@dataclass(slots=True)
class Group:
    """The collectives of one process group: each rank's entries by index, and the rows that are not settled yet."""

    name: str
    members: frozenset[int] | None  # global ranks; None where unknown
    entries: dict[int, Mapping[int, Entry]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # rank -> one past its last index
    rows: dict[int, list[tuple[Signature, list[int]]]] = field(default_factory=dict)
    mismatch: int | None = None  # the first row whose ranks disagree
    crossings: dict[frozenset[object], Crossing] = field(default_factory=dict)
    start: int = 0  # index of the first collective
    forgotten: int = 0  # index of the first collective that is still known; see `Aligner.forget`
    called: Mapping[str, GroupFacts] = field(default_factory=dict, repr=False, compare=False)

    def holders(self, index: int) -> dict[int, Entry]:
        """The ranks that have a collective at an index, in order of rank."""
        return {rank: found[index] for rank, found in sorted(self.entries.items()) if index in found}

    def when(self, index: int) -> tuple[float, int]:
        """When a collective was entered first: the time, and the position among all collectives of a rank."""
        holders = [(found, found[index]) for found in self.entries.values() if index in found]
        times = [found.time(index) if hasattr(found, "time") else entry.event.time for found, entry in holders]
        return min(times), min(entry.ordinal for _, entry in holders)

    def ranks(self) -> set[int]:
        """The members where they are known, else the ranks that were seen in the group."""
        return set(self.entries if self.members is None else self.members)


def signature(event: Event, *, uneven_gather: bool = False) -> Signature:
    """The arguments that torch needs to be equal on all ranks of this operation; None where they may differ or are unknown.

    `uneven_gather` allows unequal sizes in all_gather: NCCL supports them (documentation of torch.distributed.all_gather); gloo
    raises or aborts (run with torch 2.13). Shapes of equal numel make no difference. The byte tensors of object collectives have
    equal sizes on all ranks (padded to the largest, torch/distributed/distributed_c10d.py), so they need no exception.
    """
    op = event.op
    # A scatter's input exists on the root alone: where a producer takes the input, the others bring nothing.
    empty = op == "scatter" and not event.numel
    if op in BARRIERS:
        return (op, None, None, None, None)
    uneven = op in UNEVEN or (uneven_gather and op == "all_gather")
    return (
        op or None,
        None if uneven or empty else event.numel,
        None if empty else event.dtype,
        event.root if op in ROOTED else None,
        event.reduce_op,
    )


def agree(a: Signature, b: Signature) -> bool:
    """Whether two signatures can be one collective: None agrees with everything."""
    return a == b or first_difference(a, b) is None


def first_difference(a: Signature, b: Signature) -> str | None:
    """The kind of mismatch by the first field that differs, or None."""
    pairs = zip(KINDS, a, b, strict=True)
    return next((kind for kind, x, y in pairs if x is not None and y is not None and x != y), None)


def merge(a: Signature, b: Signature) -> Signature:
    """What is known of a collective from two ranks that agree."""
    return (
        b[0] if a[0] is None else a[0],
        b[1] if a[1] is None else a[1],
        b[2] if a[2] is None else a[2],
        b[3] if a[3] is None else a[3],
        b[4] if a[4] is None else a[4],
    )


def minority(parts: Sequence[Sequence[int]], members: int) -> list[int]:
    """The ranks outside a strict majority of a group of three or more ranks; empty without one."""
    largest = max(parts, key=len)
    if members < 3 or len(largest) * 2 <= members:
        return []
    return sorted(rank for part in parts if part is not largest for rank in part)


def function_of(site: Site) -> tuple[str, str]:
    return site.path, site.function


def events_of(holders: Iterable[tuple[int, Entry]]) -> dict[int, Event | None]:
    return {rank: entry.event for rank, entry in holders}


def forwards_of(holders: Iterable[tuple[int, Entry]]) -> dict[int, Event | None]:
    return {rank: entry.own_forward for rank, entry in holders}
