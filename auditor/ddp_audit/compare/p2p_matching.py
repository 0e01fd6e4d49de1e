"""Messages that do not meet as they should: ends that do not fit, ranks that wait in a circle, and sends and receives without a
partner.

A circle is reported while a run goes on only where nothing can undo it: each of its ranks stands in a blocking call of its main
thread, on a backend whose calls hold the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ddp_audit.compare import explain_messages as explain
from ddp_audit.compare.messages import Line, Messages, Side, difference, messages_of, post_of
from ddp_audit.compare.missing_ranks import Position, is_blocked
from ddp_audit.compare.run import MISSING, RecordedRun, backwards, last_issued
from ddp_audit.compare.sequence import Divergence, Group, Key
from ddp_audit.compare.termination import absent_for_cause, exited_in_order, has_ended
from ddp_audit.events import COLLECTIVE, POINT_TO_POINT, Event
from ddp_audit.graphs import shortest_cycle

_BEFORE = 3  # messages shown before one
_IN_ROW = 64  # messages of one place around a mismatch, among which a backend without tags may have another order


class Open(NamedTuple):
    """A message of a rank that has no other end. `number`: of its line."""

    line: Line
    number: int
    position: int
    event: Event
    peer: int


class Partners:
    """What is wrong with the messages of a run, as far as it is recorded."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.messages: Messages = messages_of(run)
        self.tells_tags = self.messages.tells_tags
        self.lines = [line for line in self.messages.lines() if {line.source, line.target} <= set(run.ranks)]
        self._open: dict[int, list[Open]] | None = None

    # -- ends that do not fit

    def mismatches(self) -> list[Divergence]:
        """The first message of each line whose ends do not fit, earliest first."""
        found = [(line, line.look(self.messages.payloads)) for line in self.lines]
        parted = [self._mismatch(line, index) for line, index in found if index is not None and self._is_sure(line, index)]
        return sorted(parted, key=time_of)

    def _mismatch(self, line: Line, index: int) -> Divergence:
        known = self.messages.payloads.known
        kind = difference(known[line.sends.payloads[index]], known[line.receives.payloads[index]])
        positions = {line.source: line.sends.positions[index], line.target: line.receives.positions[index]}
        ranks: dict[int, Event | None] = {rank: self._event(rank, position) for rank, position in positions.items()}
        text = explain.mismatch(str(kind), line.source, line.target, ranks[line.source], ranks[line.target])
        message = (line.source, line.target)
        found = Divergence(
            line.group, line.forgotten + index, str(kind), ranks, explanation=text, message=message, positions=positions
        )
        for k in range(max(0, index - _BEFORE), index):
            row = {line.source: self._end(line, True, k), line.target: self._end(line, False, k)}
            found.before.append((line.forgotten + k, row))
        return found

    def _is_sure(self, line: Line, index: int) -> bool:
        """Whether the two ends of a message are sure to meet. Several threads of a rank may issue in another order than is
        recorded, and what a batch of NCCL holds has no order."""
        around = range(max(0, index - 1), min(line.met, index + 2))
        for sends in (True, False):
            if len({self._end(line, sends, k).detail.get("thread") for k in around}) > 1:
                return False
        if self.tells_tags.get(line.group):
            return True
        first, last = index, index + 1
        while index - first < _IN_ROW and first and self._is_one_place(line, first - 1, index):
            first -= 1
        while last - index < _IN_ROW and last < line.met and self._is_one_place(line, last, index):
            last += 1
        return Counter(line.sends.payloads[first:last]) != Counter(line.receives.payloads[first:last])

    def _is_one_place(self, line: Line, a: int, b: int) -> bool:
        """Whether two messages of a line come from one place on both ranks, as those of a batch do."""
        return all(self._end(line, sends, a).stack == self._end(line, sends, b).stack for sends in (True, False))

    # -- messages without a partner

    def circle(self, groups: Mapping[Key, Group], last: Mapping[int, Position], *, stalled: bool) -> Divergence | None:
        """Ranks that wait for each other, at least one of them in a message. `last`: the last collective of each rank."""
        if not self.lines:
            return None
        stands: dict[int, Open | Event] = {}
        waits: dict[int, list[int]] = {}
        for rank, one in sorted(self.run.ranks.items()):
            own = self._stands(rank) if is_blocked(one, stalled) else None
            if own is not None and (stalled or self._is_for_good(rank, own)):
                stands[rank], waits[rank] = own, [own.peer]
            elif own is None and rank in last:
                event, (key, index) = self._in_collective(rank), last[rank]
                if event is not None and (event.group, event.index) == (key[0], index) and (stalled or _holds(event)):
                    group = groups[key]
                    stands[rank] = event
                    waits[rank] = [r for r in sorted(group.ranks()) if r != rank and group.ends.get(r, 0) <= index]
        for start in [rank for rank, held in stands.items() if isinstance(held, Open)]:
            cycle = shortest_cycle(start, waits)
            if cycle:
                told = {rank: stands[rank] for rank in sorted(cycle)}
                return self._astray(told.values()) or self._circle(told)
        return None

    def _in_collective(self, rank: int) -> Event | None:
        """The collective that a rank waits in, or that has failed on it."""
        one = self.run.ranks[rank]
        if one.waiting is not None or one.untraced:
            return one.waiting
        position = last_issued(one.events)
        event = None if position is None else self._event(rank, position)
        return event if event is not None and event.detail.get("raised") else None

    def _stands(self, rank: int) -> Open | None:
        """The message without a partner in which a rank stands: a blocking one if it is the last that the rank has issued, or the
        oldest of asynchronous ones after which it has issued nothing else. With NCCL a process runs ahead of its device: the one
        that is its oldest."""
        mine = self._without_partner().get(rank)
        run = self.run.ranks[rank]
        if not mine or run.untraced:
            return None
        trailing = len(run.events)
        for event in backwards(run.events):
            trailing -= 1
            if event.kind == COLLECTIVE and (event.op not in POINT_TO_POINT or _holds(event)):
                break
        last = last_issued(run.events)
        held = [one for one in mine if one.position > trailing or one.position == trailing == last]
        if not held:
            held = [one for one in mine if one.event == run.waiting and not self.tells_tags.get(one.line.group)]
        return min(held, key=lambda one: one.position, default=None)

    def _is_for_good(self, rank: int, one: Open) -> bool:
        """Whether nothing but another rank can end a wait."""
        held = _holds(one.event) and one.event.detail.get("thread") == 0
        return held and self.run.ranks[rank].waiting is not None and bool(self.tells_tags.get(one.line.group))

    def _without_partner(self) -> dict[int, list[Open]]:
        """The messages of each rank that have no other end and may still be waited for; of each line the first few."""
        if self._open is None:
            self._open = {}
            for line in self.lines:
                for sends, side, rank, peer in _sides(line):
                    for index in range(line.met, min(len(side), line.met + _BEFORE)):
                        event = self._event(rank, side.positions[index])
                        if event.detail.get("done") is None or not sends or self.tells_tags.get(line.group):
                            self._open.setdefault(rank, []).append(Open(line, index, side.positions[index], event, peer))
        return self._open

    def _astray(self, stands: Iterable[Open | Event]) -> Divergence | None:
        """Sends without a receive, and receives without a send, where no rank stands in a call that has its others still to come.

        `stands`: where the ranks of the circle stand. After a collective in which one stands more messages may come.
        """
        stands = list(stands)
        if any(isinstance(one, Open) and _holds(one.event) for one in stands):
            return None
        opened = [one for mine in self._without_partner().values() for one in mine]
        sends = [one for one in opened if one.event.op == "send"]
        receives = [one for one in opened if one.event.op == "recv"]
        pairs: list[tuple[Open, Open]] = []
        for sent in sends:
            # At the receiver's end another source is named, or at the sender's another target.
            fits = [one for one in receives if one.line.target == sent.peer or one.peer == sent.line.source]
            fits = [one for one in fits if post_of(one.event)[-1] == post_of(sent.event)[-1]]  # tags
            if fits:
                pairs.append((sent, fits[0]))
                receives.remove(fits[0])
        if not pairs:
            return None
        sent, received = pairs[0]
        ends = (sent.line.source, received.line.target)
        told = [(a.line.source, a.event, b.line.target, b.event) for a, b in pairs]
        ranks: dict[int, Event | None] = {ends[0]: sent.event, ends[1]: received.event}
        positions = {ends[0]: sent.position, ends[1]: received.position}
        text = explain.astray(told, is_sure=all(isinstance(one, Open) for one in stands))
        return Divergence(
            sent.line.group, sent.line.forgotten + sent.number, "peer", ranks, explanation=text, message=ends, positions=positions
        )

    def _circle(self, cycle: Mapping[int, Open | Event]) -> Divergence:
        opened = {rank: one for rank, one in cycle.items() if isinstance(one, Open)}
        events = {rank: one.event if isinstance(one, Open) else one for rank, one in cycle.items()}
        first = next(iter(opened.values()))
        ends = (first.line.source, first.line.target)
        lines = [one.line for one in opened.values()]
        if len(cycle) == 2 and len({(line.group, line.life, line.source, line.target) for line in lines}) == 1 < len(lines):
            kind, text = "operation", explain.other_tags(*ends, events[ends[0]], events[ends[1]])
        else:
            kind, text = "order", explain.circle(events)
        positions = {rank: one.position for rank, one in opened.items()}
        return Divergence(
            first.line.group,
            first.line.forgotten + first.number,
            kind,
            dict(events),
            explanation=text,
            message=ends,
            positions=positions,
        )

    def lone(self, final: Iterable[int], *, stalled: bool) -> Divergence | None:
        """The message that its other rank will never send or receive; of several the one nearest to the cause.

        `final` are the ranks that issue nothing more: those that have ended, or all of a stalled run.
        """
        final = set(final)
        runs = self.run.ranks
        found = []
        for rank, opened in self._without_partner().items():
            stands = self._stands(rank) if is_blocked(runs[rank], stalled) else None
            for one in opened:
                if one.number != one.line.met or one.peer not in final or runs[one.peer].state == MISSING:
                    continue
                in_order = exited_in_order(runs[rank]) and exited_in_order(runs[one.peer])
                if in_order or (one == stands and absent_for_cause([rank], [one.peer], runs, stalled)):
                    found.append((*self.nearness([one.peer]), one.event.time, rank, one))
        if not found:
            return None
        *_, rank, one = min(found, key=lambda item: item[:4])
        ended = all(exited_in_order(self.run.ranks[r]) for r in (rank, one.peer))
        blocked = [self._stands(r) for r in self._without_partner() if is_blocked(runs[r], stalled)]
        astray = None if ended else self._astray(held for held in blocked if held is not None)
        if astray is not None:
            return astray
        text = (explain.extra if ended else explain.missing)(rank, one.event, one.peer, self.run.ranks[one.peer])
        ranks = {one.line.source: None, one.line.target: None, rank: one.event}
        return Divergence(
            one.line.group,
            one.line.forgotten + one.number,
            "extra" if ended else "missing-rank",
            dict(sorted(ranks.items())),
            explanation=text,
            message=(one.line.source, one.line.target),
            positions={rank: one.position},
        )

    def nearness(self, lacking: Iterable[int]) -> tuple[bool, bool]:
        """How far ranks that others wait for are from a cause: those that have ended come first, then those that do not wait."""
        runs = [self.run.ranks[rank] for rank in lacking if rank in self.run.ranks]
        return not any(has_ended(one) for one in runs), bool(runs) and all(one.waiting is not None for one in runs)

    # -- events

    def _event(self, rank: int, position: int) -> Event:
        return self.run.ranks[rank].events[position]

    def _end(self, line: Line, sends: bool, index: int) -> Event:
        side, rank = (line.sends, line.source) if sends else (line.receives, line.target)
        return self._event(rank, side.positions[index])


def time_of(divergence: Divergence) -> float:
    """When a message was issued first."""
    return min(event.time for event in divergence.ranks.values() if event is not None)


def _sides(line: Line) -> tuple[tuple[bool, Side, int, int], tuple[bool, Side, int, int]]:
    return (True, line.sends, line.source, line.target), (False, line.receives, line.target, line.source)


def _holds(event: Event) -> bool:
    """Whether the call returns only when it is done."""
    return event.detail.get("async") is False
