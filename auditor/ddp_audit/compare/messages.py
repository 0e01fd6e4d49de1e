"""Point-to-point messages: which send of a rank meets which receive of another.

torch matches them in order: the k-th send of a rank to another with that rank's k-th receive from it, in one group and of one tag.
Such a sequence is a `Line`. Its sends and receives are columns of numbers, so a long run costs little.

Where pairing is not known there is silence: a receive from any source takes the sends of every rank; and NCCL has no tags, so
messages of several tags between two ranks are left alone where the backend is not known to tell them apart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE, GROUP, POINT_TO_POINT, Event
from ddp_audit.machine.module import byte_size

Payload = tuple[int | None, str | None]  # number of elements, and their type
Post = tuple[bool, str, int | None, int | None]  # whether it sends, its group, the other rank (None: any), its tag

_IN_REACH = 72  # messages before one at which `partners` may look, to show them or to see how they were issued
_BYTES = frozenset({"uint8", "int8", "bool"})
_TELLS_TAGS = frozenset({"gloo", "mpi"})  # backends that match by tag, and whose blocking messages hold the process


class Payloads:
    """The numbers of payloads, from 0."""

    def __init__(self) -> None:
        self.known: list[Payload] = []
        self._numbers: dict[Payload, int] = {}

    def number(self, event: Event) -> int:
        payload = (event.numel, event.dtype)
        number = self._numbers.setdefault(payload, len(self.known))
        if number == len(self.known):
            self.known.append(payload)
        return number


@lru_cache(maxsize=4096)
def difference(sent: Payload, received: Payload) -> str | None:
    """The kind of mismatch of two ends of a message, `size` or `dtype`; None where they agree. What is unknown agrees, and so
    do bytes that stand for something else."""
    (numel, dtype), (room, as_dtype) = sent, received
    if None in (numel, dtype, room, as_dtype) or sent == received:
        return None
    if dtype == as_dtype:
        return "size"
    sizes = byte_size(numel, dtype), byte_size(room, as_dtype)
    if sizes[0] == sizes[1] and not _BYTES.isdisjoint((dtype, as_dtype)):
        return None
    return "dtype" if numel == room or sizes[0] == sizes[1] else "size"


@dataclass(slots=True)
class Side:
    """The sends, or the receives, of a line: their payloads, and their positions among the events of the rank."""

    payloads: array[int] = field(default_factory=lambda: array("I"))
    positions: array[int] = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, payload: int, position: int) -> None:
        self.payloads.append(payload)
        self.positions.append(position)

    def cut(self, first: int, last: int) -> Side:
        return Side(self.payloads[first:last], self.positions[first:last])


Posts = dict[Post, Side]  # what one rank has sent and received


@dataclass(slots=True)
class Line:
    """The messages of one tag from one rank to another in a group. `life` counts how often process groups were initialised."""

    group: str
    life: int
    source: int
    target: int
    tag: int | None
    sends: Side = field(default_factory=Side)
    receives: Side = field(default_factory=Side)
    mismatch: int | None = None  # the first message whose ends do not fit
    forgotten: int = 0  # messages before the first that is still there
    _checked: int = 0

    @property
    def met(self) -> int:
        """How many messages have both ends."""
        return min(len(self.sends), len(self.receives))

    def look(self, payloads: Payloads) -> int | None:
        """The first message whose ends do not fit. Costs what is new."""
        if self.mismatch is None:
            start, end = self._checked, self.met
            sent, received = self.sends.payloads, self.receives.payloads
            self._checked = end
            if sent[start:end] != received[start:end]:
                known = payloads.known
                self.mismatch = next((i for i in range(start, end) if difference(known[sent[i]], known[received[i]])), None)
        return self.mismatch

    def forget(self, kept: int) -> None:
        """Forgets all but the last messages that have met and fit."""
        count = self.met - kept
        if count >= kept and self.mismatch is None:
            for side in (self.sends, self.receives):
                del side.payloads[:count], side.positions[:count]
            self.forgotten += count
            self._checked = max(0, self._checked - count)


class Messages:
    """All messages of a run, as far as it is known."""

    def __init__(self, payloads: Payloads | None = None) -> None:
        self.payloads = payloads or Payloads()
        self._lines: dict[tuple[str, int, int, int], dict[int | None, Line]] = {}
        self._any_source: set[tuple[str, int, int, int | None]] = set()  # group, life and rank that receives from any, and the tag
        self._unknown: set[tuple[str, int]] = set()  # group and life in which somebody sends to a rank that is not known
        self.tells_tags: dict[str, bool] = {}  # by group whether its backend matches by tag; others are of an unknown one
        self.partial: set[int] = set()  # ranks of which messages may be lost
        self._lives: dict[int, int] = {}
        self._fed: dict[int, int] = {}

    def feed(self, rank: int, events: Sequence[Event]) -> None:
        """Takes what a rank has issued since it was fed last, of all its events in the order of recording."""
        start = self._fed.get(rank, 0)
        if len(events) < start:  # the worker was started again
            self._forget(rank)
            start = 0
        for position in range(start, len(events)):
            event = events[position]
            if event.kind == COLLECTIVE and event.op in POINT_TO_POINT:
                side = self._side(rank, self._lives.get(rank, 0), post_of(event))
                if side is not None:
                    side.add(self.payloads.number(event), position)
            elif event.kind == GROUP:
                self._meet(event.detail)
                if event.detail.get("action") == "init":
                    self._lives[rank] = self._lives.get(rank, 0) + 1
        self._fed[rank] = len(events)

    def take(self, rank: int, posts: Mapping[Post, Side], groups: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Takes all that a rank has issued. `groups`: the details of its GROUP events and where they stand, in order."""
        inits = []
        for position, detail in groups:
            self._meet(detail)
            if detail.get("action") == "init":
                inits.append(position)
        self._lives[rank] = len(inits)
        for post, side in posts.items():
            edges = [0, *(bisect_left(side.positions, position) for position in inits), len(side)]
            for life, (first, last) in enumerate(pairwise(edges)):
                mine = self._side(rank, life, post) if first < last else None
                if mine is not None:
                    own = side if last - first == len(side) else side.cut(first, last)
                    mine.payloads, mine.positions = own.payloads, own.positions

    def _meet(self, detail: Mapping[str, Any]) -> None:
        """Notes of a group's event whether its backend matches messages by tag."""
        backend = str(detail.get("backend") or "")
        if backend:
            parts = {part.rpartition(":")[2] for part in backend.split(",")}
            self.tells_tags[str(detail.get("name"))] = parts <= _TELLS_TAGS

    def _side(self, rank: int, life: int, post: Post) -> Side | None:
        sends, group, peer, tag = post
        if peer is None:
            if sends:
                self._unknown.add((group, life))
            else:
                self._any_source.add((group, life, rank, tag))
            return None
        source, target = (rank, peer) if sends else (peer, rank)
        lines = self._lines.setdefault((group, life, source, target), {})
        line = lines.get(tag)
        if line is None:
            line = lines[tag] = Line(group, life, source, target, tag)
        return line.sends if sends else line.receives

    def forget(self, kept: int = 256) -> None:
        """Forgets messages that have met and fit, but for the last of each line."""
        for lines in self._lines.values():
            for line in lines.values():
                line.look(self.payloads)
                line.forget(kept)

    def unmet(self, rank: int, most: int = 256) -> set[int]:
        """Where among the events of a rank stand the last messages of each line that met, and the first that did not."""
        found: set[int] = set()
        for lines in self._lines.values():
            for line in lines.values():
                for side, own in ((line.sends, line.source), (line.receives, line.target)):
                    if own == rank:
                        first = max(0, (line.met if line.mismatch is None else line.mismatch) - _IN_REACH)
                        found.update(side.positions[first : first + most])
        return found

    def _forget(self, rank: int) -> None:
        self._lives.pop(rank, None)
        self._any_source = {key for key in self._any_source if key[2] != rank}
        for (_, _, source, target), lines in self._lines.items():
            if rank in (source, target):
                for tag, line in lines.items():
                    kept = line.receives if source == rank else line.sends
                    new = Line(line.group, line.life, source, target, tag)
                    if source != target:
                        new.sends, new.receives = (new.sends, kept) if source == rank else (kept, new.receives)
                    lines[tag] = new

    def lines(self) -> Iterator[Line]:
        """The lines whose pairing is known."""
        takes_any = {key[:3] for key in self._any_source}
        for (group, life, source, target), lines in self._lines.items():
            if (group, life) in self._unknown or source == target or not self.partial.isdisjoint((source, target)):
                continue
            if self.tells_tags.get(group):
                yield from (line for tag, line in lines.items() if (group, life, target, tag) not in self._any_source)
            elif len(lines) == 1 and (group, life, target) not in takes_any:
                yield from lines.values()

    def is_met(self, rank: int, event: Event, position: int) -> bool:
        """Whether a message of a rank has found its other end; also where that cannot be known."""
        sends, group, peer, tag = post_of(event)
        if peer is None:
            return True
        for life in range(self._lives.get(rank, 0) + 1):
            key = (group, life, rank, peer) if sends else (group, life, peer, rank)
            line = self._lines.get(key, {}).get(tag)
            if line is None or (group, life, line.target, tag) in self._any_source:
                continue
            own, other = (line.sends, line.receives) if sends else (line.receives, line.sends)
            index = bisect_left(own.positions, position)
            if index < len(own) and own.positions[index] == position:
                return index < len(other)
        return True


def post_of(event: Event) -> Post:
    """What decides which other end a message meets."""
    return event.op == "send", event.group, event.detail.get("peer"), event.detail.get("tag")


def messages_of(run: RecordedRun) -> Messages:
    """The messages of a run: those that its reader has gathered, or else those of its events."""
    if run.messages is not None:
        return run.messages
    found = Messages()
    for rank, one in run.ranks.items():
        found.feed(rank, one.events)
    return found
