"""The autograd graph of outputs, as far as it decides which gradients there are and in which order they become ready.

The engine of a backward pass runs the nodes of the graph from the newest to the oldest, and accumulates a gradient as soon as
the last of its contributions is there (torch/csrc/autograd/engine.cpp: nodes wait in a heap by their sequence numbers, and
those that accumulate come before all others). So a parameter is ready when its oldest use among those behind the loss is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ddp_audit.events import Event

Used = Mapping[str, int] | Collection[str] | None  # the parameters that a forward uses: see `Ddp.forward`

_NUMBERS = itertools.count(1)


def next_number() -> int:
    """The number of a use of a parameter, higher than all before it, whichever wrapper they belong to."""
    return next(_NUMBERS)


def numbered(names: Iterable[str]) -> dict[str, int]:
    """The number of the oldest use of each parameter, for uses that now happen in this order."""
    found: dict[str, int] = {}
    for name in names:
        found.setdefault(name, next_number())
    return found


def ready_together(count: int, waiting: int = 0) -> list[int]:
    """The order in which gradients become ready that one node hands on, by their places among its inputs.

    All have the same priority, so that the heap of the engine decides (`std::priority_queue`, which is not stable): the order
    depends on the number of other nodes that are `waiting` in it. Up to two are ready in the order of the inputs.
    """
    heap: list[tuple[int, int]] = []
    for other in range(waiting):
        _push(heap, (0, other))
    for place in range(count):
        _push(heap, (1, place))
    return [_pop(heap)[1] for _ in range(count)]


def _push(heap: list[tuple[int, int]], entry: tuple[int, int], hole: int | None = None) -> None:
    """`std::push_heap` of libstdc++."""
    if hole is None:
        heap.append(entry)
        hole = len(heap) - 1
    while hole > 0 and heap[(hole - 1) // 2][0] < entry[0]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = entry


def _pop(heap: list[tuple[int, int]]) -> tuple[int, int]:
    """`std::pop_heap` of libstdc++."""
    top, last = heap[0], heap.pop()
    size, hole, child = len(heap), 0, 0
    if not heap:
        return top
    while child < (size - 1) // 2:
        child = 2 * (child + 1)
        if heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[hole] = heap[child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:
        heap[hole] = heap[2 * child + 1]
        hole = 2 * child + 1
    _push(heap, last, hole)
    return top


@dataclass(slots=True)
class Handle:
    """An output of one forward: what a backward can start from.

    `uses` holds the keys of the parameters that it depends on (their names, except for one that replaced another), each with the
    number of its oldest use. `at` is the number of the forward's end.
    """

    number: int
    grad: bool
    uses: dict[str, int]
    sink: bool = False  # whether torch put its sink on the output, which starts the delayed all-reduce of a static graph
    reaches_all: bool = False  # whether a backward from a part of the output calls the hooks of what the rest depends on too
    training: bool = True
    at: int = field(default_factory=next_number)
    freed: set[str] = field(default_factory=set)  # what a backward has freed of the graph, known to all parts of the output
    whole: Handle | None = None

    def part(self, uses: Mapping[str, int]) -> Handle:
        """One tensor of the output, which depends on these parameters only."""
        return Handle(
            self.number,
            self.grad and bool(uses),
            dict(uses),
            self.sink,
            self.reaches_all,
            self.training,
            self.at,
            self.freed,
            self,
        )

    @property
    def used(self) -> frozenset[str]:
        """The keys of the parameters that it depends on."""
        return frozenset(self.uses)

    @property
    def hooked(self) -> Mapping[str, int]:
        """The parameters whose hooks a backward from here calls: torch's sink hands on a gradient to every tensor of the output."""
        return {**self.whole.uses, **self.uses} if self.whole is not None and self.reaches_all else self.uses

    @property
    def is_freed(self) -> bool:
        """Whether a backward has freed a part of the graph behind it."""
        return not self.freed.isdisjoint(self.uses)

    def free(self) -> None:
        """A backward without `retain_graph` has passed."""
        self.freed.update(self.uses)


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """The collectives that a forward issued, in order, and its output."""

    events: list[Event]
    handle: Handle = field(repr=False)
