"""The newest events of a rank whose run is watched: what all ranks agree on is counted and forgotten, so that hours take no more
memory than minutes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from ddp_audit.events import EXCEPTION, EXIT, GROUP, START, WRAP, Event

KEPT = 1024  # events of each rank that are never forgotten
_LASTING = frozenset({START, GROUP, WRAP, EXCEPTION, EXIT})  # kinds that say what the run is, or how it ended


class RecentEvents(Sequence[Event]):
    """The events of one rank by their position in the whole run; older ones may be forgotten.

    An event that is forgotten has a position, counts in the length and in `tally`, and cannot be asked for: IndexError.
    """

    def __init__(self) -> None:
        self._old: dict[int, Event] = {}  # what is kept of the events before the newest, by position
        self._new: list[Event] = []
        self._start = 0  # position of the first of `_new`
        self._forgotten: dict[str, tuple[Event, int]] = {}  # by kind the first that was forgotten, and how many

    @property
    def forgotten(self) -> int:
        """How many events are forgotten."""
        return self._start - len(self._old)

    def append(self, event: Event) -> None:
        self._new.append(event)

    def replace(self, position: int, event: Event) -> None:
        """Puts an event in the place of another, where that is not forgotten."""
        if position >= self._start:
            self._new[position - self._start] = event
        elif position in self._old:
            self._old[position] = event

    def forget(self, needed: Collection[int], kept: int = KEPT) -> None:
        """Forgets all but the newest events, those that say what the run is, and those at the positions in `needed`."""
        count = len(self._new) - 2 * kept
        if count <= 0:
            return
        count += kept
        kinds: Counter[str] = Counter()
        for position, event in chain(self._old.items(), enumerate(self._new[:count], self._start)):
            if event.kind not in _LASTING and position not in needed:
                self._forgotten.setdefault(event.kind, (event, 0))
                kinds[event.kind] += 1
        old = chain(self._old.items(), enumerate(self._new[:count], self._start))
        self._old = {position: event for position, event in old if event.kind in _LASTING or position in needed}
        for kind, more in kinds.items():
            event, before = self._forgotten[kind]
            self._forgotten[kind] = event, before + more
        del self._new[:count]
        self._start += count

    def __len__(self) -> int:
        return self._start + len(self._new)

    @overload
    def __getitem__(self, position: int) -> Event: ...
    @overload
    def __getitem__(self, position: slice) -> list[Event]: ...
    def __getitem__(self, position: int | slice) -> Event | list[Event]:
        if isinstance(position, slice):
            taken = range(*position.indices(len(self)))
            if taken and taken.step == 1 and taken[0] >= self._start:
                return self._new[taken[0] - self._start : taken[-1] + 1 - self._start]
            return [self[one] for one in taken if one >= self._start or one in self._old]
        if position < 0:
            position += len(self)
        if position >= self._start:
            return self._new[position - self._start]
        if position not in self._old:
            raise IndexError(position)
        return self._old[position]

    def holds(self, position: int) -> bool:
        """Whether the event at a position is not forgotten."""
        return self._start <= position < len(self) or position in self._old

    def __iter__(self) -> Iterator[Event]:
        """What is not forgotten, in order."""
        return chain(self._old.values(), self._new)

    def backwards(self) -> Iterator[Event]:
        """What is not forgotten, from the last to the first. The newest ones have no gap between them."""
        return chain(reversed(self._new), reversed(self._old.values()))

    def of_kinds(self, kinds: tuple[str, ...]) -> Iterator[Event]:
        return (event for event in self if event.kind in kinds)

    def tally(self, kind: str) -> Iterable[tuple[Event, int]]:
        """Of each event that is kept one, and one that stands for all that are forgotten."""
        known = ((event, 1) for event in self if event.kind == kind)
        return chain(known, [self._forgotten[kind]]) if kind in self._forgotten else known
