"""How long each rank of a group worked and waited in each of its newest steps, and what follows from that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from ddp_audit import events
from ddp_audit.compare.group_names import group_text
from ddp_audit.compare.run import RankRun, RecordedRun
from ddp_audit.compare.waiting.arrivals import Meeting, meetings_of
from ddp_audit.compare.waiting.clocks import clock_offsets
from ddp_audit.compare.waiting.straggler import Straggler, Worked, find_stragglers
from ddp_audit.compare.waiting.timeline import MEETING, MESSAGE, Key, Mark, marks_of, phase_of, shown_site, waits_for
from ddp_audit.events import Event, Site

LEAST_STEPS = 10
MOST_RANKS = 256  # above, a window of so few records holds too few steps
_MOST_EVENTS = 1 << 17  # that are looked at, of all ranks together: the newest
_MOST_OF_A_RANK = 1 << 13
_MOST_PLACES = 5
_LAST_FEW = 20


@dataclass(frozen=True, slots=True)
class RankWaiting:
    """Seconds that a rank waited for others in collectives, how often it was the last to come, and the seconds for which the others
    waited for it alone."""

    waited: float
    last: int
    held_up: float


@dataclass(frozen=True, slots=True)
class LatePlace:
    """Collectives of one line: how many, the rank that came last to most of them, how often it did, and by how much on average."""

    site: Site | None
    op: str
    count: int
    rank: int
    times: int
    late: float


@dataclass(slots=True)
class Waiting:
    """The newest `steps` steps of a group, `seconds` long in all. `own`: the seconds of each rank's own work, by phase;
    `pace`: the seconds of one of the last few steps."""

    group: str
    steps: int
    seconds: float
    ranks: dict[int, RankWaiting]
    own: dict[int, dict[str, float]] = field(default_factory=dict)
    places: list[LatePlace] = field(default_factory=list)
    stragglers: list[Straggler] = field(default_factory=list)
    pace: float = 0.0
    called: str = ""  # the group in a sentence

    def share(self, rank: int) -> float:
        """The part of the time that a rank waited."""
        return self.ranks[rank].waited / self.seconds if self.seconds > 0 else 0.0


def waiting(run: RecordedRun) -> list[Waiting]:
    """What the newest records of a run say of each group that trains; nothing where there are too few steps, or where the clocks of
    the hosts cannot be compared."""
    ranks = {rank: one for rank, one in sorted(run.ranks.items()) if len(one.events)}
    if len(ranks) < 2 or len(ranks) > MOST_RANKS:
        return []
    most = min(_MOST_OF_A_RANK, _MOST_EVENTS // len(ranks))
    newest = {rank: one.events[-most:] for rank, one in ranks.items()}
    found = waiting_of(newest, run.groups, {rank: _host(one) for rank, one in ranks.items()})
    for one in found:
        one.called = group_text(one.group, run.called)
    return found


def _host(one: RankRun) -> str:
    start = next((event for event in one.events[:1] if event.kind == events.START), None)
    return "" if start is None else str(start.detail.get("host") or "")


def waiting_of(
    newest: Mapping[int, Sequence[Event]], groups: Mapping[str, Sequence[int]], hosts: Mapping[int, str]
) -> list[Waiting]:
    """As `waiting`, of the given events of each rank."""
    marks = {rank: marks_of(own) for rank, own in newest.items()}
    offsets = clock_offsets(marks, hosts)
    if offsets is None:
        return []
    meetings = meetings_of(marks, groups, offsets)
    return [
        found
        for group, anchors in _anchors(meetings).items()
        if (found := _measured(group, anchors, marks, offsets, meetings)) is not None
    ]


def _anchors(meetings: Mapping[Key, Meeting]) -> dict[str, list[Meeting]]:
    """By group the meetings that end a step: those of backward passes; without any, all in which each rank waits for each."""
    found: dict[str, list[Meeting]] = defaultdict(list)
    for meeting in meetings.values():
        if meeting.is_backward:
            found[meeting.key[0]].append(meeting)
    if not found:
        for meeting in meetings.values():
            if waits_for(meeting.op) == "all":
                found[meeting.key[0]].append(meeting)
        most = max(found.values(), key=lambda one: (len(one[0].arrived), len(one)), default=[])
        found = defaultdict(list, {most[0].key[0]: most} if most else {})
    return {group: sorted(one, key=lambda meeting: meeting.key[1]) for group, one in found.items()}


def _measured(
    group: str,
    anchors: Sequence[Meeting],
    marks: Mapping[int, Sequence[Mark]],
    offsets: Mapping[int, float],
    meetings: Mapping[Key, Meeting],
) -> Waiting | None:
    steps = len(anchors) - 1
    if steps < LEAST_STEPS:
        return None
    members = sorted(anchors[0].arrived)
    ends = [max(anchor.arrived.values()) for anchor in anchors]
    order = {anchor.key: number for number, anchor in enumerate(anchors)}
    worked, ranks = {}, {}
    met = [meeting for meeting in meetings.values() if ends[0] < max(meeting.arrived.values()) <= ends[-1]]
    last: Counter[int] = Counter()
    held_up: Counter[int] = Counter()
    for meeting in met:
        if waits_for(meeting.op) == "all":
            last[meeting.last] += 1
            held_up[meeting.last] += meeting.late  # type: ignore[assignment]
    for rank in members:
        worked[rank], waited = _walk(rank, marks[rank], offsets[rank], meetings, order)
        ranks[rank] = RankWaiting(waited, last[rank], float(held_up[rank]))
    lengths = [later - earlier for earlier, later in pairwise(ends)]
    return Waiting(
        group,
        steps,
        ends[-1] - ends[0],
        ranks,
        {rank: one.totals() for rank, one in worked.items()},
        list(_places(met, set(members))),
        find_stragglers(worked, lengths),
        median(lengths[-_LAST_FEW:]),
    )


def _walk(
    rank: int, marks: Sequence[Mark], offset: float, meetings: Mapping[Key, Meeting], order: Mapping[Key, int]
) -> tuple[Worked, float]:
    """What a rank worked in each step, and how long it waited between the first end of a step and the last."""
    steps = len(order) - 1
    worked = Worked(steps)
    waited = 0.0
    step = -1  # before the first end of a step
    start: Mark | None = None
    free: float | None = None  # since when it works; None: not known
    for mark in marks:
        now = mark.time - offset
        if free is not None and start is not None and now > free and 0 <= step < steps:
            phase = phase_of(start.kind, mark.kind)
            worked.add(step, phase, shown_site(phase, start, mark), now - free)
        if mark.kind == MESSAGE:
            free = None
        elif mark.kind != MEETING:
            start, free = mark, now
        else:
            meeting = None if mark.key is None else meetings.get(mark.key)
            ends = None if mark.ends is None else mark.ends - offset
            free = ends
            if meeting is not None:
                left = max(now, meeting.release(rank))
                left = left if ends is None else max(now, min(left, ends))
                if 0 <= step < steps:
                    waited += left - now
                free = left if ends is None else ends
            if mark.key is not None and mark.key in order:
                step = order[mark.key]
    return worked, waited


def _places(met: Sequence[Meeting], members: Collection[int]) -> Iterator[LatePlace]:
    """The lines at which the most is waited for one rank."""
    by_place: dict[tuple[Site | None, str], list[Meeting]] = defaultdict(list)
    for meeting in met:
        if waits_for(meeting.op) == "all" and set(meeting.arrived) == set(members):
            by_place[meeting.site, "backward" if meeting.is_backward else meeting.op].append(meeting)
    found = []
    for (site, op), one in by_place.items():
        by_rank: dict[int, list[float]] = defaultdict(list)
        for meeting in one:
            by_rank[meeting.last].append(meeting.late)
        rank = max(by_rank, key=lambda number: (len(by_rank[number]), sum(by_rank[number])))
        late = by_rank[rank]
        found.append(LatePlace(site, op, len(one), rank, len(late), sum(late) / len(late)))
    yield from sorted(found, key=lambda place: -place.times * place.late)[:_MOST_PLACES]
