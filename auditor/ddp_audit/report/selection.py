"""Which events of a run a view or an export shows: all, or of a large run those around the place where its ranks diverge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddp_audit.compare.run import RankRun, RecordedRun
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import Comparison
from ddp_audit.events import COLLECTIVE, POINT_TO_POINT, Event

_LEAST = 40  # events of a rank


@dataclass(frozen=True, slots=True)
class Selection:
    """`ranges` has the positions of each rank's events that are taken, `total` counts all. `apart` is the first divergence."""

    run: RecordedRun
    ranges: dict[int, range]
    total: int
    apart: Divergence | None

    @property
    def is_whole(self) -> bool:
        return sum(map(len, self.ranges.values())) == self.total

    def events(self, rank: int) -> Sequence[Event]:
        taken = self.ranges[rank]
        return self.run.ranks[rank].events[taken.start : taken.stop]

    def is_apart(self, event: Event) -> bool:
        """Whether an event is in the collective or the message in which the ranks diverge."""
        apart = self.apart
        return apart is not None and event.kind == COLLECTIVE and is_in(event, apart)

    def note(self) -> str:
        """What is left out, in a sentence; empty where nothing is."""
        if self.is_whole:
            return ""
        most = max(map(len, self.ranges.values()))
        around = "around the first divergence" if self.apart is not None else "at the end"
        return f"Of {self.total:,} events there are up to {most:,} of each rank, {around}."


def is_in(event: Event, apart: Divergence) -> bool:
    """Whether a collective or a message of some rank is the one in which ranks diverge."""
    if apart.message is not None:
        return any(event == one for one in apart.ranks.values())
    return (event.group, event.index) == (apart.group, apart.index)


def select(run: RecordedRun, comparison: Comparison, most: int) -> Selection:
    """All events where there are no more than `most`, else as many of each rank as that allows, around the first divergence."""
    total = sum(len(rank.events) for rank in run.ranks.values())
    apart = next(iter([*comparison.parted, *comparison.crossed]), None)
    each = max(_LEAST, most // max(1, len(run.ranks)))
    ranges = {}
    for rank, one in sorted(run.ranks.items()):
        count = len(one.events)
        if total <= most:
            ranges[rank] = range(count)
            continue
        at = count if apart is None else _position(one, apart)
        stop = min(count, at + each // 3 + 1)
        ranges[rank] = range(max(0, stop - each), stop)
    return Selection(run, ranges, total, apart)


def _position(run: RankRun, apart: Divergence) -> int:
    """Where a rank's collective of a divergence stands among its events; where it would stand without one."""
    events = run.events
    if apart.ranks.get(run.rank) is None:
        return len(events)
    if apart.message is not None:
        return apart.positions.get(run.rank, len(events))
    for position, event in _numbered(events):
        if event.index == apart.index and event.group == apart.group:
            return position
    return len(events)


def _numbered(events: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    alike = getattr(events, "alike", None)  # a trace that is read in bulk need not be read again
    if alike is not None:
        return ((position, alike(position)) for position in range(len(events)))
    return ((p, e) for p, e in enumerate(events) if e.kind == COLLECTIVE and e.op not in POINT_TO_POINT)
