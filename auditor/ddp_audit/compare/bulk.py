"""The comparison of many or long sequences: what `Aligner` finds event by event, found on columns of numbers.

A collective's place in a program (its arguments, its stack, and whether its forward ran with gradients) has a number, so the
collectives of a rank in one group are an array of numbers. Ranks whose arrays are equal are looked at once, and no event is
made but for the rows that a report shows. The outcome is that of `Aligner.feed`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from ddp_audit.compare.align import Aligner, Row, classify
from ddp_audit.compare.call_site_mismatch import is_full, note_places
from ddp_audit.compare.explain import frames
from ddp_audit.compare.messages import Payloads
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.sequence import Crossing, Entry, Group, Key, Signature
from ddp_audit.compare.splits import LISTS, UNEVEN, shares_of
from ddp_audit.compare.verdict import new_aligner
from ddp_audit.events import COLLECTIVE, DDP_BUFFERS, DDP_JOIN, FORWARD, OBJECT, POINT_TO_POINT, SYNC_BATCHNORM, USER, Event

ABSENT = 0  # the number of no place: a rank that has no collective at an index
GRADED = (DDP_BUFFERS, SYNC_BATCHNORM)  # origins of which the forward says something

_MOST_SPLITS = 1 << 20  # events whose split sizes are looked at in a group


class Places:
    """The numbers of places, from 1. An event stands for all that are alike."""

    def __init__(self) -> None:
        self.known: list[tuple[Event, bool | None]] = [(Event(COLLECTIVE), None)]
        self._numbers: dict[object, int] = {}
        self.payloads = Payloads()

    def number(self, event: Event, grad: bool | None) -> int:
        """The number of a collective's place; `grad` says whether its forward ran with gradients, None where it has none."""
        grad = grad if event.origin in GRADED else None
        what = (event.op, event.group, event.origin, event.numel, event.dtype, event.root, event.reduce_op)
        shares = shares_of(event) if event.op in LISTS else ()  # those of an all_to_all may change from call to call
        key = (*what, event.site, event.stack, grad, shares)
        number = self._numbers.setdefault(key, len(self.known))
        if number == len(self.known):
            self.known.append((event, grad))
        return number


@dataclass(slots=True)
class Track:
    """The collectives of a rank in one group, by index: places, positions among the rank's events and among its collectives."""

    places: array[int] = field(default_factory=lambda: array("I"))
    positions: array[int] = field(default_factory=lambda: array("I"))
    ordinals: array[int] = field(default_factory=lambda: array("I"))
    start: int = 0  # index of the first: more than 0 where those before it were overwritten

    @property
    def end(self) -> int:
        """One past the last index."""
        return self.start + len(self.places)

    def add(self, index: int, place: int, position: int, ordinal: int) -> None:
        for column, value in ((self.places, place), (self.positions, position), (self.ordinals, ordinal)):
            column.extend([ABSENT] * (index - self.start - len(column)))
            column.append(value)


Tracks = dict[Key, Track]  # in the order in which a rank first uses the groups


class Tracked(Protocol):
    """Events that know their tracks."""

    def tracks(self) -> Tracks: ...
    def forward_before(self, position: int) -> Event | None: ...
    def alike(self, position: int) -> Event:
        """The event at a position; its time need not be in it."""

    def time(self, position: int) -> float: ...


class Listed:
    """The tracks of events that are all there."""

    def __init__(self, events: Sequence[Event], places: Places) -> None:
        self._events = events
        self._forwards: list[Event | None] = []
        self._tracks: Tracks = {}
        forward: Event | None = None
        lives: dict[str, int] = {}
        ordinal = 0
        for position, event in enumerate(events):
            self._forwards.append(forward)
            if event.kind == FORWARD:
                forward = event
            elif event.kind == COLLECTIVE and event.op not in POINT_TO_POINT:
                grad = None if forward is None else forward.detail.get("grad")
                add_to(self._tracks, lives, event.group, event.index, places.number(event, grad), position, ordinal)
                ordinal += 1

    def tracks(self) -> Tracks:
        return self._tracks

    def forward_before(self, position: int) -> Event | None:
        return self._forwards[position]

    def alike(self, position: int) -> Event:
        return self._events[position]

    def time(self, position: int) -> float:
        return self._events[position].time


def add_to(
    tracks: Tracks,
    lives: dict[str, int],
    group: str,
    index: int | None,
    place: int,
    position: int,
    ordinal: int,
    lost: bool = False,
) -> None:
    """Puts one collective where it belongs: an index that was there before is that of a new group of the old name. `lost`: earlier
    ones were overwritten."""
    track = tracks.get((group, lives.setdefault(group, 0)))
    if track is None:
        track = tracks[group, lives[group]] = Track(start=index if lost and index is not None else 0)
    if index is None:
        index = track.end
    if index < track.end:
        lives[group] += 1
        track = tracks[group, lives[group]] = Track()
    track.add(index, place, position, ordinal)


class Entries(Mapping[int, Entry]):
    """The entries of a rank in a group, made when they are asked for. Ranks share the events."""

    __slots__ = ("_events", "_track")

    def __init__(self, events: Tracked, track: Track) -> None:
        self._events = events
        self._track = track

    def __getitem__(self, index: int) -> Entry:
        if index not in self:
            raise KeyError(index)
        at = index - self._track.start
        position = self._track.positions[at]
        event = self._events.alike(position)
        forward = None if event.origin in (USER, OBJECT) else self._events.forward_before(position)
        return Entry(event, forward, self._track.ordinals[at])

    def time(self, index: int) -> float:
        """When the collective was entered; the time of an entry's event need not be known."""
        return self._events.time(self._track.positions[index - self._track.start])

    def __contains__(self, index: object) -> bool:
        track = self._track
        return isinstance(index, int) and track.start <= index < track.end and track.places[index - track.start] != ABSENT

    def __iter__(self) -> Iterator[int]:
        return (index for index, place in enumerate(self._track.places, self._track.start) if place != ABSENT)

    def __len__(self) -> int:
        return len(self._track.places) - self._track.places.count(ABSENT)


def aligned(run: RecordedRun, places: Places) -> Aligner:
    """An aligner that knows all of a run. `places` numbers the places of those events that know their tracks."""
    aligner = new_aligner(run)
    found: dict[Key, list[tuple[int, Track]]] = {}
    for rank, rank_run in run.ranks.items():
        events = rank_run.events
        tracked: Tracked = events if hasattr(events, "tracks") else Listed(events, places)  # type: ignore[assignment]
        latest = -1
        for key, track in tracked.tracks().items():
            found.setdefault(key, []).append((rank, track))
            group = aligner.group_of(key)
            group.entries[rank] = Entries(tracked, track)
            group.ends[rank] = track.end
            if track.ordinals[-1] > latest:
                latest = track.ordinals[-1]
                aligner.last[rank] = (key, track.end - 1)
    aligner.know_lost(rank for rank, one in run.ranks.items() if one.lost)
    for key, ranks in found.items():
        comparison = _Comparison(aligner, aligner.groups[key], places)
        comparison.compare(ranks)
        comparison.look_at_splits(ranks)
    return aligner


class _Comparison:
    """Of one group: finds the first row whose ranks disagree, and before it those whose ranks come from different places."""

    def __init__(self, aligner: Aligner, group: Group, places: Places) -> None:
        self._aligner = aligner
        self._group = group
        self._places = places
        self._signatures: dict[int, Signature] = {}
        self._crossings: dict[frozenset[int], tuple[bool, Crossing | None]] = {}

    def compare(self, ranks: list[tuple[int, Track]]) -> None:
        if len(ranks) < 2:
            return
        shared: dict[int, Track] = {}  # tracks that several ranks share are looked at once; in order of rank
        for _, track in ranks:
            shared.setdefault(id(track), track)
        start = max(track.start for track in shared.values())  # from here on all of them are known
        variants = list(
            {known.tobytes(): known for known in (track.places[start - track.start :] for track in shared.values())}.values()
        )
        if len(variants) < 2:
            return
        for index, row in enumerate(zip_longest(*variants, fillvalue=ABSENT), start):
            numbers = set(row)
            numbers.discard(ABSENT)
            if len(numbers) > 1 and self._disagree(index, row, frozenset(numbers)):
                self._group.mismatch = index
                return

    def look_at_splits(self, ranks: list[tuple[int, Track]]) -> None:
        """Finds the first all_to_all, or collective of lists, before a row whose ranks disagree, of which the split sizes do."""
        members = self._group.members
        if members is None or len(ranks) < len(members) or len(ranks) < 2:
            return
        uneven = {number for _, track in ranks for number in set(track.places) if self._is_uneven(number)}
        if not uneven:
            return
        start, end = max(track.start for _, track in ranks), min(track.end for _, track in ranks)
        if self._group.mismatch is not None:
            end = min(end, self._group.mismatch)
        columns = [track.places[start - track.start : end - track.start] for _, track in ranks]
        left = _MOST_SPLITS
        fit: set[tuple[int, ...]] = set()  # rows of lists that do
        for index, row in enumerate(zip(*columns, strict=True), start):
            if row[0] not in uneven or ABSENT in row or row in fit:
                continue
            if self._aligner.splits(self._group, index):
                self._group.mismatch = index
                return
            if self._places.known[row[0]][0].op in LISTS:
                fit.add(row)
            left -= len(row)
            if left < 0:
                return

    def _is_uneven(self, number: int) -> bool:
        event = self._places.known[number][0]
        return number != ABSENT and (event.op in UNEVEN or (event.op in LISTS and bool(shares_of(event))))

    def _disagree(self, index: int, row: Sequence[int], numbers: frozenset[int]) -> bool:
        known = self._crossings.get(numbers)
        if known is None:
            alike = len({self._signature(number) for number in numbers}) == 1
            known = self._crossings[numbers] = (alike, None)
        alike, crossing = known
        if not alike:
            classes: Row = []
            for number in row:
                if number != ABSENT:
                    classify(classes, number, self._signature(number))
            if len(classes) > 1:
                return True
        if crossing is not None:
            crossing.count += 1
        else:
            self._crossings[numbers] = (alike, self._cross(index, numbers))
        return False

    def _signature(self, number: int) -> Signature:
        found = self._signatures.get(number)
        if found is None:
            found = self._signatures[number] = self._aligner.signature(self._places.known[number][0])
        return found

    def _cross(self, index: int, numbers: frozenset[int]) -> Crossing | None:
        """Notes a row as `note_places` does; returns what stands for its places."""
        known = [self._places.known[number] for number in numbers]
        if any(event.origin == DDP_JOIN for event, _ in known):
            return None
        grads_known = all(grad is not None for _, grad in known)
        key = frozenset(
            (USER if event.origin == OBJECT else event.origin, frames(event), grad if grads_known else None)
            for event, grad in known
            if frames(event)
        )
        if len(key) < 2:
            return None
        crossing = self._group.crossings.get(key)
        if crossing is not None:
            crossing.count += 1
        elif not is_full(self._group):
            note_places(self._group, index)
            crossing = self._group.crossings.get(key)
        return crossing
