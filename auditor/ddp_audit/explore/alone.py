"""What comes of a forward through the wrapper that only some ranks make, at each time when it can happen.

Where the script can be interpreted to its end, and nothing leaves open whether and when the forward happens, that run tells;
otherwise the lowered program is walked with the forward at each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddp_audit.events import DDP_BUFFERS, FORWARD, STEP, Event
from ddp_audit.explore import Exploration, Prediction, Scenario
from ddp_audit.findings import Span
from ddp_audit.machine.matching import COMPLETES
from ddp_audit.program.model import Node
from ddp_audit.program.values import World, defaults_in, truth

# When the lone forward happens, against the optimizer steps of training.
ALWAYS = "whenever its own condition holds"
FIRST = "before the first optimizer step"
REBUILD = "between the first and the second optimizer step"
LATER = "after the second optimizer step"
_TRIES = 4  # iterations in which it is tried


@dataclass(frozen=True, slots=True)
class Lone:
    """One time of the lone forward and what comes of it."""

    when: str
    prediction: Prediction
    sent: int  # buffer broadcasts that the ranks which make the forward issue there
    without: Prediction | None = None  # the same run where the forward sends nothing, for one that stops
    stands: bool = False  # whether a rank stands in such a broadcast in the end

    @property
    def goes_on(self) -> bool:
        """Whether every rank comes through."""
        return self.prediction.outcome.kind == COMPLETES and not self.prediction.raised

    @property
    def is_cause(self) -> bool:
        """Whether the run stops because of the forward: without its own broadcast it would go on, or not stop there.

        Where the run stops without it too, that has a cause of its own, which the broadcast may only bring forward: then a rank
        has to stand in it.
        """
        if self.goes_on or not self.sent or self.without is None:
            return False
        if self.without.outcome.kind == COMPLETES and not self.without.raised:
            return True
        return self.stands and _stops(self.prediction) != _stops(self.without)


def _stops(prediction: Prediction) -> object:
    """Where each rank stands in the end: its place, and the optimizer steps before it."""
    if prediction.outcome.kind == COMPLETES:
        return dict(prediction.raised)
    found = {}
    for rank, events in prediction.sequences.items():
        at = prediction.outcome.positions[rank]
        site = events[at].site if at < len(events) else None
        found[rank] = (site, sum(event.kind == STEP for event in events[:at]))
    return found


def lone_forward(exploration: Exploration, node: Node, earlier: Sequence[Node] = ()) -> list[Lone]:
    """Runs the program with the forward at each time where its guards leave the time open, else as the program has it.

    The forwards `earlier`, at which the ranks stop, send nothing: what comes behind them is a cause of its own.
    """
    earlier = [other for other in earlier if _line(other) != _line(node)]
    found = _whole(exploration, node, earlier)
    if found is not None:
        return found
    ways = {guard.span: guard.whole for guard in node.guards}
    rank_0 = World(0, 2, 2)
    open_guards = [g for g in node.guards if g.via != "early-exit" and truth(g.test, rank_0) is None]
    passed = frozenset(other.span for other in earlier)
    if not open_guards or not node.loops:
        return [_run(exploration, node, passed, ways, None, None)]
    tried = [_run(exploration, node, passed, ways, open_guards[0].span, hit) for hit in range(_TRIES)]
    by_time = {time.when: time for time in reversed(tried)}
    return [by_time[when] for when in (FIRST, REBUILD, LATER, ALWAYS) if when in by_time]


def _line(node: Node) -> tuple[str, int]:
    return node.span.path, node.span.line


def _whole(exploration: Exploration, node: Node, earlier: Sequence[Node]) -> list[Lone] | None:
    """What the run of the whole script says; None where it does not reach the forward on some ranks alone, or was not whole.

    Empty where all members of the wrapper's group make the forward: then it is not alone.
    """
    if any(default.open for guard in node.guards for default in defaults_in(guard.test)):
        return None
    passed = frozenset(map(_line, earlier))
    run = exploration.whole_without(passed)
    if run is None or any(run.was_assumed(guard.span.path, guard.span.line) for guard in node.guards):
        return None
    here = _line(node)
    ends = run.stops
    made = {
        rank: sum(_at(e, here) for e in events[: ends.get(rank, len(events)) + 1] if e.kind == FORWARD)
        for rank, events in run.sequences.items()
    }
    if len(set(made.values())) < 2:
        return None
    groups = {e.group for events in run.sequences.values() for e in events if e.origin == DDP_BUFFERS and _at(e, here)}
    members = [set(run.groups[group]) for group in groups if group in run.groups]
    if groups and len(members) == len(groups) and all(len({made[rank] for rank in ranks}) == 1 for ranks in members):
        return []
    prediction = Prediction(run.sequences, run.outcome, run.raised)
    other = None if prediction.outcome.kind == COMPLETES else exploration.without({*passed, here})
    without = None if other is None else Prediction(other.sequences, other.outcome, other.raised)
    return [Lone(ALWAYS, prediction, _sent(prediction, here), without, _stands(prediction, here))]


def _run(
    exploration: Exploration, node: Node, passed: frozenset[Span], ways: dict[Span, bool], place: Span | None, hit: int | None
) -> Lone:
    def decide(asked: Span, count: int) -> bool | None:
        if place is not None and asked == place:
            return ways[asked] if count == hit else not ways[asked]
        return ways.get(asked)

    scenario = Scenario(decide=decide, iterations=_TRIES, buffers=True, without=passed)
    prediction = exploration.predict(scenario)
    here = _line(node)
    goes_on = prediction.outcome.kind == COMPLETES and not prediction.raised
    without = None if goes_on else exploration.predict(replace(scenario, without=passed | {node.span}))
    when = ALWAYS if place is None else _time(prediction, here)
    return Lone(when, prediction, _sent(prediction, here), without, _stands(prediction, here))


def _sent(prediction: Prediction, here: tuple[str, int]) -> int:
    return max(sum(e.origin == DDP_BUFFERS and _at(e, here) for e in events) for events in prediction.sequences.values())


def _stands(prediction: Prediction, here: tuple[str, int]) -> bool:
    """Whether some rank waits in a broadcast of buffers of the forward when the run stops."""
    if prediction.outcome.kind == COMPLETES:
        return False
    last = [(events, prediction.outcome.positions[rank]) for rank, events in prediction.sequences.items()]
    return any(at < len(events) and events[at].origin == DDP_BUFFERS and _at(events[at], here) for events, at in last)


def _at(event: Event, here: tuple[str, int]) -> bool:
    return event.site is not None and (event.site.path, event.site.line) == here


def _time(prediction: Prediction, here: tuple[str, int]) -> str:
    """When the forward came, by the optimizer steps before it on the rank that made it."""
    for events in prediction.sequences.values():
        steps = 0
        for event in events:
            steps += event.kind == STEP
            if event.kind == FORWARD and _at(event, here):
                return FIRST if steps == 0 else REBUILD if steps == 1 else LATER
    return ALWAYS
