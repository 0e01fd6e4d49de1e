"""What comes of a forward through the wrapper that only some ranks make, at each time when it can happen."""

from __future__ import annotations

from dataclasses import dataclass

from ddp_audit.events import DDP_BUFFERS
from ddp_audit.explore import Exploration, Prediction, Scenario
from ddp_audit.findings import Span
from ddp_audit.machine.matching import COMPLETES
from ddp_audit.program.model import Node
from ddp_audit.program.values import World, truth

# When the lone forward happens, against the optimizer steps of training.
ALWAYS = "whenever its own condition holds"
FIRST = "before the first optimizer step"
REBUILD = "between the first and the second optimizer step"
LATER = "after the second optimizer step"
_TIMES = (FIRST, REBUILD, LATER)


@dataclass(frozen=True, slots=True)
class Lone:
    """One time of the lone forward and what comes of it."""

    when: str
    prediction: Prediction
    sent: int  # buffer broadcasts that the ranks which make the forward issue there

    @property
    def goes_on(self) -> bool:
        """Whether every rank comes through."""
        return self.prediction.outcome.kind == COMPLETES and not self.prediction.raised


def lone_forward(exploration: Exploration, node: Node) -> list[Lone]:
    """Runs the program with the forward at each time: once where its guards leave the time open, else as the program has it."""
    ways = {guard.span: guard.polarity for guard in node.guards}
    open_guards = [g for g in node.guards if g.taint and truth(g.test, World(0, 2, 2)) is None]
    if not open_guards:
        return [_run(exploration, node, ALWAYS, ways, None, None)]
    place = open_guards[0].span
    return [_run(exploration, node, when, ways, place, hit) for hit, when in enumerate(_TIMES)]


def _run(
    exploration: Exploration, node: Node, when: str, ways: dict[Span, bool], place: Span | None, hit: int | None
) -> Lone:
    def decide(asked: Span, count: int) -> bool | None:
        if place is not None and asked == place:
            return ways[asked] if count == hit else not ways[asked]
        return ways.get(asked)

    prediction = exploration.predict(Scenario(decide=decide, iterations=4, buffers=True))
    here = (node.span.path, node.span.line)
    sent = max(
        sum(e.origin == DDP_BUFFERS and e.site is not None and (e.site.path, e.site.line) == here for e in events)
        for events in prediction.sequences.values()
    )
    return Lone(when, prediction, sent)
