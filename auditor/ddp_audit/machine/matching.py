"""Which ranks meet where: runs the collectives of all ranks against each other, as gloo would.

A rank goes on where its call has returned, so one that meets nobody never reaches what comes after. What gloo does when ranks
disagree follows from its messages (see `gloo`): different operations or roots wait forever; equal operations meet whatever
their site, dtype or reduce operation; different sizes abort, wait, or pass silently, by how the messages happen to be cut.
A rank that has ended is taken to stay alive; in truth its exit soon breaks the connections of those that still wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ddp_audit.events import (
    COLLECTIVE,
    DDP_BUCKET,
    DDP_BUFFERS,
    DDP_CONSTRUCTOR,
    DDP_REBUILD,
    DDP_UNUSED_MAP,
    GROUP,
    POINT_TO_POINT,
    WAIT,
    Event,
)
from ddp_audit.machine import gloo
from ddp_audit.machine.module import ELEMENT_SIZE, byte_size

COMPLETES = "completes"
HANGS = "hangs"
ABORTS = "aborts"

POOL = 2  # collectives of one group that gloo carries out at once on one rank (its worker threads)
NEVER = -1  # in place of the event that a wait is for: it does not return
ANYBODY = -1  # the peer of a receive that takes a message of any rank


@dataclass(frozen=True, slots=True)
class Meeting:
    """Collective number `index` of `group`, in which ranks met although they differ in `what`.

    `what` is site (equal operations from different lines or of different origin), size, dtype or reduce-op: none of these stops
    the run, and the values are wrong for all but site.
    """

    group: str
    index: int
    what: str
    events: Mapping[int, Event]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of all ranks ends.

    `kind` is completes, hangs or aborts. `positions` is the place of each rank in its sequence: the event in which it stopped,
    or the sequence's length. `meetings` are the collectives in which unlike calls met. `aborted` is the rank that gloo kills.
    `certain` is False where a rank has taken its bucket layout from a message that was something else: what it sends from then
    on depends on the values that it received.
    """

    kind: str
    positions: Mapping[int, int]
    explanation: str
    meetings: tuple[Meeting, ...] = ()
    aborted: int | None = None
    certain: bool = True


def match(
    sequences: Mapping[int, Sequence[Event]] | Sequence[Sequence[Event]],
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Outcome:
    """Runs the sequences of all ranks against each other. `groups` gives the global ranks of groups that no event creates;
    others have all ranks.

    Events that are not collectives or group creations pass. Sizes that are not known agree with all.
    """
    by_rank = dict(sequences) if isinstance(sequences, Mapping) else dict(enumerate(sequences))
    return run_ranks({rank: [events] for rank, events in by_rank.items()}, groups)


def run_ranks(
    programs: Mapping[int, Sequence[Sequence[Event]]] | Sequence[Sequence[Sequence[Event]]],
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Outcome:
    """Like `match`, for programs whose events are listed call by call: what one call sends at once never spans two calls."""
    by_rank = dict(programs) if isinstance(programs, Mapping) else dict(enumerate(programs))
    return _Run(by_rank, dict(groups or {})).outcome()


@dataclass(slots=True)
class _Work:
    """One collective under way on one rank."""

    position: int
    actions: list[gloo.Action]
    slot: tuple[str, str, int]
    members: tuple[int, ...]
    at: int = 0
    done: list[bool] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.at >= len(self.actions)


@dataclass(slots=True)
class _Post:
    """A send or a receive that waits for its other half."""

    work: _Work
    number: int
    nbytes: int


@dataclass(slots=True)
class _Rank:
    """A rank's script: positions to issue and positions to wait for, in order, and the work that it has under way."""

    script: list[tuple[str, int, int]]  # issue or wait; where the rank stands; the event that is issued or awaited
    at: int = 0
    queues: dict[str, list[_Work]] = field(default_factory=dict)  # of each group, oldest first; the first POOL of each run
    direct: list[_Work] = field(default_factory=list)  # point to point, which no worker thread carries out
    finished: set[int] = field(default_factory=set)


class _Run:
    def __init__(self, programs: dict[int, Sequence[Sequence[Event]]], groups: dict[str, Sequence[int]]) -> None:
        self.world = tuple(sorted(programs))
        self.groups = groups
        self.events = {rank: [e for call in calls for e in call] for rank, calls in programs.items()}
        self.ranks = {rank: _Rank(list(_script(calls))) for rank, calls in programs.items()}
        self.index: dict[tuple[int, int], int] = {}  # (rank, position) -> number in its group
        self.place: dict[tuple[int, str, int], int] = {}  # (rank, group, number in it) -> position
        self.table: dict[tuple[str, int], dict[int, Event]] = {}  # (group, number) -> event of each rank
        for rank, events in self.events.items():
            counts: dict[str, int] = {}
            for position, event in enumerate(events):
                if event.kind == COLLECTIVE and event.op not in POINT_TO_POINT:
                    number = counts.get(event.group, 0)
                    counts[event.group] = number + 1
                    self.index[rank, position] = number
                    self.place[rank, event.group, number] = position
                    self.table.setdefault((event.group, number), {})[rank] = event
        self.own_groups: dict[int, dict[str, tuple[int, ...]]] = {
            rank: {
                str(e.detail["name"]): tuple(e.detail.get("ranks") or self.world)
                for e in events
                if e.kind == GROUP and e.detail.get("action") == "new_group" and e.detail.get("name")
            }
            for rank, events in self.events.items()
        }
        self.posted: dict[tuple[int, int, tuple[str, str, int]], tuple[list[_Post], list[_Post]]] = {}
        self.from_any: dict[tuple[int, tuple[str, str, int]], list[_Post]] = {}  # receives that take a message of any rank
        self.aborted: int | None = None
        self.abort_sizes = (0, 0)

    def outcome(self) -> Outcome:
        moved = True
        while moved and self.aborted is None:
            moved = False
            for rank, state in self.ranks.items():
                while self._advance(rank, state) and self.aborted is None:
                    moved = True
        positions = {rank: self._position(rank) for rank in self.world}
        meetings = tuple(self._meetings())
        certain = not any(_garbles_layout(meeting) for meeting in meetings)
        if self.aborted is not None:
            return Outcome(ABORTS, positions, self._explain_abort(positions), meetings, self.aborted, certain)
        if all(positions[rank] == len(self.events[rank]) for rank in self.world):
            return Outcome(COMPLETES, positions, self._explain_end(meetings), meetings, certain=certain)
        return Outcome(HANGS, positions, self._explain_hang(positions), meetings, certain=certain)

    # Moves.

    def _advance(self, rank: int, state: _Rank) -> bool:
        """One move of one rank, on its own thread or on a worker of gloo; False where it has to wait."""
        if state.at < len(state.script):
            kind, _, position = state.script[state.at]
            event = self.events[rank][position]
            if kind == "issue":
                state.at += 1
                if event.kind == COLLECTIVE and event.op in POINT_TO_POINT:
                    self._issue_point_to_point(rank, position, event)
                elif event.kind == COLLECTIVE:
                    state.queues.setdefault(event.group, []).append(self._work(rank, position, event))
                elif not (event.kind == GROUP and event.detail.get("action") == "new_group"):
                    state.finished.add(position)
                return True
            if position in state.finished or (position != NEVER and self._group_formed(rank, event)):
                state.finished.add(position)
                state.at += 1
                return True
        for works in (*(queue[:POOL] for queue in state.queues.values()), state.direct):
            for work in works:
                if work.finished:
                    (state.direct if works is state.direct else state.queues[work.slot[0]]).remove(work)
                    state.finished.add(work.position)
                    return True
                if self._act(rank, work):
                    return True
        return False

    def _act(self, rank: int, work: _Work) -> bool:
        action = work.actions[work.at]
        if action.kind == gloo.WAIT:
            if not work.done[action.post]:
                return False
            work.at += 1
            return True
        work.at += 1
        work.done.append(False)
        post = _Post(work, len(work.done) - 1, action.nbytes)
        if action.peer == ANYBODY:
            self._receive_from_any(rank, post)
            return True
        peer = work.members[action.peer]
        source, target = (rank, peer) if action.kind == gloo.SEND else (peer, rank)
        sends, receives = self.posted.setdefault((source, target, work.slot), ([], []))
        waiting = self.from_any.get((target, work.slot))
        if action.kind == gloo.SEND and waiting and not receives:
            self._meet(target, post, waiting.pop(0))
            return True
        (sends if action.kind == gloo.SEND else receives).append(post)
        while sends and receives and self.aborted is None:
            self._meet(target, sends.pop(0), receives.pop(0))
        return True

    def _meet(self, target: int, send: _Post, receive: _Post) -> None:
        """Carries a message over. Gloo ends the process of the target where more arrives than fits."""
        if send.nbytes > receive.nbytes:
            self.aborted, self.abort_sizes = target, (send.nbytes, receive.nbytes)
            return
        for post in (send, receive):
            post.work.done[post.number] = True

    def _receive_from_any(self, rank: int, receive: _Post) -> None:
        """Takes the first message of any rank; which of several comes first is a race, and all are taken to be alike."""
        for source in self.world:
            sends, _ = self.posted.get((source, rank, receive.work.slot), ([], []))
            if sends:
                self._meet(rank, sends.pop(0), receive)
                return
        self.from_any.setdefault((rank, receive.work.slot), []).append(receive)

    def _issue_point_to_point(self, rank: int, position: int, event: Event) -> None:
        """A send waits until its receive has been posted. A message to or from a rank that is not known passes.

        So does one of a rank that was not followed. One with a rank that the group does not have meets nobody.
        """
        peer = event.detail.get("peer")
        sends = event.op == "send"
        nobody = bool(event.detail.get("nobody"))
        if "peer" not in event.detail or (sends and peer is None) or (peer not in (None, *self.world) and not nobody):
            self.ranks[rank].finished.add(position)
            return
        element = ELEMENT_SIZE.get(event.dtype or "", 4)
        nbytes = (0 if sends else gloo.NO_LIMIT) if event.numel is None else event.numel * element
        actions = [gloo.Action(gloo.WAIT, post=0)]
        slot = (event.group, "point-to-point", int(event.detail.get("tag") or 0))
        work = _Work(position, actions, slot, self.world)
        if nobody:
            work.done.append(False)
        else:
            to = ANYBODY if peer is None else self.world.index(peer)
            actions.insert(0, gloo.Action(gloo.SEND if sends else gloo.RECV, to, nbytes))
        self.ranks[rank].direct.append(work)

    def _members(self, rank: int, group: str) -> tuple[int, ...]:
        """The members of a group as this rank has created it."""
        return self.own_groups[rank].get(group) or tuple(self.groups.get(group, self.world))

    def _work(self, rank: int, position: int, event: Event) -> _Work:
        number = self.index[rank, position]
        members = self._members(rank, event.group)
        element, nbytes = self._size(event, self.table[event.group, number], len(members))
        root = members.index(event.root) if event.root in members else 0
        actions = gloo.plan(event.op, rank=members.index(rank), size=len(members), nbytes=nbytes, element=element, root=root)
        return _Work(position, actions, (event.group, gloo.slot_of(event.op), number), members)

    def _size(self, event: Event, met: Mapping[int, Event], members: int) -> tuple[int, int]:
        """Bytes of an element and of the tensor. Where all agree, a large tensor may be cut: its messages only repeat."""
        known = {(e.numel, ELEMENT_SIZE[e.dtype]) for e in met.values() if e.numel is not None and e.dtype in ELEMENT_SIZE}
        element = ELEMENT_SIZE.get(event.dtype or "", 4)
        if not known:
            return element, element * 2 * members
        if len(known) == 1:
            [(numel, element)] = known
            return element, min(numel * element, 2 * members * gloo.MAX_SEGMENT)
        if event.numel is None or event.dtype not in ELEMENT_SIZE:
            numel, element = max(known, key=lambda size: size[0] * size[1])
            return element, numel * element
        return element, event.numel * element

    def _group_formed(self, rank: int, event: Event) -> bool:
        """Whether a group creation can return: every member has come to one of this name, or this rank is not a member."""
        if event.kind != GROUP or event.detail.get("action") != "new_group":
            return False
        members = tuple(event.detail.get("ranks") or self.world)
        if rank not in members:
            return True
        return all(self._has_reached(member, event) for member in members if member in self.ranks)

    def _has_reached(self, rank: int, group: Event) -> bool:
        state = self.ranks[rank]
        for kind, _, position in state.script[: state.at + 1]:
            event = self.events[rank][position]
            if kind == "wait" and event.kind == GROUP and event.detail.get("name") == group.detail.get("name"):
                return tuple(event.detail.get("ranks") or self.world) == tuple(group.detail.get("ranks") or self.world)
        return False

    # Results.

    def _position(self, rank: int) -> int:
        state = self.ranks[rank]
        return state.script[state.at][1] if state.at < len(state.script) else len(self.events[rank])

    def _meetings(self) -> Iterator[Meeting]:
        for (group, number), met in sorted(self.table.items()):
            members = list(met)
            if len(members) < 2 or not all(self.place[r, group, number] in self.ranks[r].finished for r in members):
                continue
            for what, differs in (
                ("size", _differ(byte_size(e.numel, e.dtype) for e in met.values())),
                ("dtype", _differ(e.dtype for e in met.values())),
                ("reduce-op", _differ(e.reduce_op for e in met.values())),
                ("site", _differ(e.site for e in met.values()) or _differ(e.origin for e in met.values())),
            ):
                if differs:
                    yield Meeting(group, number, what, dict(met))

    def _awaited(self, rank: int, event: Event) -> Event:
        """What an event waits for: itself, or for a wait what was started before."""
        if event.kind != WAIT:
            return event
        work = event.detail.get("work")
        return next((e for e in self.events[rank] if e.kind != WAIT and e.detail.get("work", self) == work), event)

    def _stuck(self, positions: Mapping[int, int]) -> list[str]:
        lines = []
        for rank in self.world:
            position = positions[rank]
            if position < len(self.events[rank]):
                event = self.events[rank][position]
                where = f" at {event.site}" if event.site else ""
                lines.append(f"rank {rank} waits in {self._awaited(rank, event).what}{where}")
            else:
                lines.append(f"rank {rank} has ended")
        return lines

    def _explain_hang(self, positions: Mapping[int, int]) -> str:
        return "; ".join(self._stuck(positions)) + "."

    def _explain_abort(self, positions: Mapping[int, int]) -> str:
        sent, room = self.abort_sizes
        return (
            f"gloo aborts rank {self.aborted}: {sent} bytes arrive where it has room for {room}; "
            + "; ".join(self._stuck(positions)).replace(" waits in ", " is in ")
            + "."
        )

    def _explain_end(self, meetings: Sequence[Meeting]) -> str:
        if not meetings:
            return "Every collective meets its like on the other ranks."
        first = meetings[0]
        calls = "; ".join(f"rank {r} {e.what}" + (f" at {e.site}" if e.site else "") for r, e in sorted(first.events.items()))
        return f"The run goes on, but unlike calls meet in {len(meetings)} collectives, first number {first.index}: {calls}."


def _script(calls: Sequence[Sequence[Event]]) -> Iterator[tuple[str, int, int]]:
    """Issues and waits of one rank.

    Torch issues the buckets of one backward at once and keeps two coalesced broadcasts in flight; everything else returns
    before the next is issued, but for asynchronous calls (`work` or `async` in the detail), which return at once: an event of
    kind WAIT waits for those that have the same `work`.
    """
    works: dict[object, int] = {}
    messages: set[int] = set()  # what was started and is point to point
    arrived: set[int] = set()  # messages that were waited for
    position = 0
    loose: list[int] = []  # buckets of a reduction that has not ended: a later backward may end it and wait for them
    for call in calls:
        under_way: list[int] = []
        kind = ""
        for event in call:
            flight = _flight(event)
            if flight != kind or not flight:
                yield from (("wait", p, p) for p in under_way)
                under_way = []
            kind = flight
            if kind == "coalesced" and len(under_way) == 2:
                oldest = under_way.pop(0)
                yield "wait", oldest, oldest
            if event.kind == WAIT:
                if event.detail.get("work") in works:
                    awaited = works[event.detail["work"]]
                    # Gloo waits for a message as often as it is set to, and it arrives once.
                    yield "wait", position, NEVER if awaited in arrived else awaited
                    arrived |= {awaited} if awaited in messages else set()
                position += 1
                continue
            if event.detail.get("forgets"):
                loose = []
            yield "issue", position, position
            if event.detail.get("async") or "work" in event.detail:
                works[event.detail.get("work")] = position
                messages |= {position} if event.op in POINT_TO_POINT else set()
            elif event.detail.get("awaited") is False:
                loose.append(position)
            else:
                if kind == "backward":
                    under_way, loose = [*loose, *under_way], []
                under_way.append(position)
            position += 1
        yield from (("wait", p, p) for p in under_way)


def _garbles_layout(meeting: Meeting) -> bool:
    """Whether a rank has received its rebuilt buckets from a call that was something else."""
    origins = {event.origin for event in meeting.events.values()}
    return DDP_REBUILD in origins and len(origins) > 1


def _flight(event: Event) -> str:
    if event.kind != COLLECTIVE:
        return ""
    if event.origin in (DDP_BUCKET, DDP_UNUSED_MAP):
        return "backward"
    if event.origin == DDP_BUFFERS or (event.origin == DDP_CONSTRUCTOR and event.op == "broadcast"):
        return "coalesced"
    return ""


def _differ(values: Iterator[object] | Sequence[object]) -> bool:
    return len({v for v in values if v is not None}) > 1


__all__ = ["ABORTS", "COMPLETES", "HANGS", "Meeting", "Outcome", "match", "run_ranks"]
