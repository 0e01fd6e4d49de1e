"""A recorded run: the event sequences of all its ranks, and the questions that comparison and verdicts ask of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, cast

from ddp_audit.events import COLLECTIVE, Event, Site

if TYPE_CHECKING:
    from ddp_audit.compare.group_names import GroupFacts
    from ddp_audit.compare.messages import Messages

# How a rank ended, or where it is.
RUNNING = "running"  # it issued something a moment ago
WAITING = "waiting"  # inside a collective that has not returned
EXITED = "exited"  # left in order; see code
RAISED = "raised"  # an exception left the script
KILLED = "killed"  # no exit record and the process is gone
MISSING = "missing"  # no trace file
_MOST_MADE = 1 << 18  # events of all ranks that are made at once: about 200 MB
EMPTY_FILE = "an empty trace file"  # what is known last of a rank that had no room to record anything


class Looked(Protocol):
    """Events that need not all be made to be looked through: those of a trace that is read in bulk (`trace.columns`)."""

    def of_kinds(self, kinds: tuple[str, ...]) -> Iterator[Event]:
        """The events of these kinds, in order."""

    def tally(self, kind: str) -> Iterable[tuple[Event, int]]:
        """Events of a kind, alike but for time, number and value, with how many there are of each."""

    def backwards(self) -> Iterator[Event]:
        """The events from the last to the first, but for time, number and value."""

    def trained(self) -> Mapping[str, tuple[Event, Sequence[object]]]:
        """By wrapper the first of its forwards with gradients, and the batch of each of them; see `compare.silent`."""

    def epochs(self) -> Iterable[tuple[Event, list[object]]]:
        """Each iteration of a sampler with the known batches of the forwards with gradients after it."""


def backwards(events: Sequence[Event]) -> Iterator[Event]:
    """The events from the last to the first; times, numbers and values need not be in them."""
    return cast("Looked", events).backwards() if hasattr(events, "backwards") else iter(reversed(events))


def of_kinds(events: Sequence[Event], *kinds: str) -> Iterator[Event]:
    """The events of these kinds, in order."""
    if hasattr(events, "of_kinds"):
        return cast("Looked", events).of_kinds(kinds)
    return (event for event in events if event.kind in kinds)


def forgotten(events: Sequence[Event]) -> int:
    """How many events of a rank are no longer known."""
    return getattr(events, "forgotten", 0)


def last_of(events: Sequence[Event], kind: str) -> Event | None:
    """The last event of a kind."""
    if hasattr(events, "of_kinds"):
        return next(iter(deque(of_kinds(events, kind), 1)), None)
    return next((event for event in reversed(events) if event.kind == kind), None)


def tally(events: Sequence[Event], kind: str) -> Iterable[tuple[Event, int]]:
    """The events of a kind with how many are like it; of events alike but for time, number and value one may stand for all."""
    if hasattr(events, "tally"):
        return cast("Looked", events).tally(kind)
    return ((event, 1) for event in events if event.kind == kind)


def last_issued(events: Sequence[Event]) -> int | None:
    """The position of the last collective or message of a rank."""
    for number, event in enumerate(backwards(events), 1):
        if event.kind == COLLECTIVE:
            return len(events) - number
    return None


@dataclass(slots=True)
class RankRun:
    """What one rank did. `events` are in the order of recording; `code` is the exit code where one is known."""

    rank: int
    events: Sequence[Event] = field(default_factory=list)
    state: str = RUNNING
    code: int | None = None
    last: str = ""  # one line: the last thing recorded, with its site
    stands: Site | None = None  # the user's line at which it stood, outside of collectives, when it was asked last
    locked: bool = False  # its interpreter was locked by a call in C, and `stands` is the line of that
    fatal: str = ""  # the fatal signal that ended it, in the words of faulthandler, where that has shown where it came
    seen: Site | None = None  # of a rank that was killed or does not answer the user's line at which it was seen last
    stopped: bool = False  # the tracer's launcher ended it, because nothing moved any more
    untraced: bool = False  # its tracer ended before it: nothing is known of what came then
    damage: str = ""  # what is wrong with its trace, which is known up to there
    lost: bool = False  # its trace is a ring that has come round: of its events the newest are known, and those that say what it is
    since: float = 0.0  # the time of the first of the newest
    blocked: float = 0.0  # since when it stands at one place of torch.distributed outside of collectives; `seen` is its line
    lingers: bool = False  # its program has ended, and its process has done nothing since and lives
    silent: float = 0.0  # seconds since its tracer last showed life, where that is too long
    waiting: Event | None = None  # the oldest collective that has not returned, also of a rank that was killed in it


@dataclass(slots=True)
class RecordedRun:
    """All ranks of one run. `groups` maps a group's name to its global ranks, `called` to what people know of it; `meta` is
    run.json; `messages` are its sends and receives where the reader has gathered them; `earlier` the attempts after which the
    launcher started the ranks again."""

    world_size: int
    ranks: dict[int, RankRun] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    complete: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    messages: Messages | None = None
    earlier: list[RecordedRun] = field(default_factory=list)
    called: dict[str, GroupFacts] = field(default_factory=dict)
    damage: str = ""  # what is wrong with run.json, in a sentence

    def make_events(self) -> None:
        """Makes all events of a trace that is read in bulk, for questions that go through them many times; not of a long run, where
        memory is dearer than time."""
        if sum(len(rank.events) for rank in self.ranks.values()) > _MOST_MADE:
            return
        for rank in self.ranks.values():
            rank.events = list(rank.events)

    def all_events(self) -> Iterator[tuple[int, Event]]:
        """Every event with its rank, rank by rank."""
        for rank, run in sorted(self.ranks.items()):
            for event in run.events:
                yield rank, event

    def events_of(self, *kinds: str) -> Iterator[tuple[int, Event]]:
        """Every event of these kinds with its rank, rank by rank."""
        for rank, run in sorted(self.ranks.items()):
            for event in of_kinds(run.events, *kinds):
                yield rank, event

    def events_at(self, path: str, line: int, end_line: int | None = None) -> list[tuple[int, Event]]:
        """Events that have a user frame in lines `line`..`end_line` of `path`, with their ranks."""
        last = line if end_line is None else end_line
        return [
            (rank, event)
            for rank, event in self.all_events()
            if any(line <= s.line <= last and same_file(s.path, path) for s in (*event.stack, *filter(None, (event.site,))))
        ]

    def ranks_at(self, path: str, line: int, end_line: int | None = None) -> set[int]:
        """Ranks that were seen in these lines."""
        return {rank for rank, _ in self.events_at(path, line, end_line)}


def same_file(a: str, b: str) -> bool:
    """Whether two paths name one file, where one may be absolute and the other relative to some folder above it."""
    if a == b:
        return True
    short, long = sorted((PurePosixPath(a).parts, PurePosixPath(b).parts), key=len)
    return bool(short) and long[-len(short) :] == short
