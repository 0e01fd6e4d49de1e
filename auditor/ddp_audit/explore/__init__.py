"""Exploration: the program run on the machine, once for each rank, under stated assumptions.

There are two ways through a program, and each has its use:

- `Exploration.predict` walks the lowered tree. It needs no values: a condition that is open is answered by the scenario, a loop
  of unknown length runs a few times, sizes are nominal. So it serves what-ifs at places that rules name, in any program, with
  options that their defaults leave open.
- `Exploration.whole` is the run of package `exact`, which interprets the script value by value, with the sizes of its layers and
  the number of its batches. It is the more exact of the two wherever it comes to the end of the program, and is None elsewhere.

A rule asks `whole` first, and `predict` without a predicted run or where a condition that matters is open (`alone` is the example).
Both give event sequences, how the ranks end when they meet, and where they diverge or cross.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddp_audit.compare.align import align
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import COLLECTIVE, Event
from ddp_audit.explore.walk import Scenario, Walk
from ddp_audit.machine.matching import Outcome, match
from ddp_audit.program.model import Program
from ddp_audit.program.values import World

if TYPE_CHECKING:
    from ddp_audit.explore.exact import Run
    from ddp_audit.explore.proof import Predicted


@dataclass(slots=True)
class Prediction:
    """What the ranks of a job do in one scenario, and what comes of it.

    `sequences` are the events of each rank, `outcome` how they end when they meet, `raised` the ranks that a call stops, with
    torch's text. `truncated` says that the walk was cut short.
    """

    sequences: dict[int, list[Event]]
    outcome: Outcome
    raised: dict[int, str] = field(default_factory=dict)
    truncated: bool = False

    def collectives(self, rank: int) -> list[Event]:
        """The collectives of one rank, in order."""
        return [event for event in self.sequences[rank] if event.kind == COLLECTIVE]

    def divergences(self) -> list[Divergence]:
        """Where the predicted sequences part or cross, by the comparison that recorded runs go through too."""
        return align(self.sequences)

    def local_steps(self) -> list[Event]:
        """Optimizer steps of any rank that use gradients which were never reduced."""
        return [e for events in self.sequences.values() for e in events if e.detail.get("local")]


@dataclass(slots=True)
class Exploration:
    """The program, ready to be run. Predictions are made on demand. `interpret` runs the script value by value."""

    program: Program
    world_size: int = 2
    interpret: Callable[[], Predicted] | None = None
    found: Predicted | None = None  # the predicted run, once it was asked for

    def predicted(self) -> Predicted | None:
        """The run of every rank, value by value, and what it proves; None where nothing can interpret the script."""
        if self.interpret is not None:
            self.found = self.interpret()
            self.interpret = None
        return self.found

    def whole(self) -> Run | None:
        """The run of every rank from the first statement to the last, or to where the ranks diverge for good.

        None where it was cut short before that, or has gaps.
        """
        found = self.predicted()
        ends = found is not None and found.parting is not None and not found.parting.rests_on
        return found.run if found is not None and (found.run.is_whole or ends) else None

    def without(self, places: Set[tuple[str, int]]) -> Run | None:
        """The predicted run in which forwards through a wrapper at lines send nothing."""
        found = self.predicted()
        return None if found is None else found.without(places)

    def whole_without(self, places: Set[tuple[str, int]]) -> Run | None:
        """The same run, under the conditions of `whole`."""
        if not places:
            return self.whole()
        found = self.predicted()
        return None if found is None else found.whole_without(places)

    def predict(self, scenario: Scenario | None = None) -> Prediction:
        """Runs every rank of a small job through the program. `world_size` ranks, all on one node."""
        chosen = scenario or Scenario()
        walks = {rank: Walk(self.program, World(rank, self.world_size, self.world_size), chosen) for rank in range(self.world_size)}
        sequences = {rank: walk.run() for rank, walk in walks.items()}
        return Prediction(
            sequences,
            match(sequences),
            {rank: walk.raised for rank, walk in walks.items() if walk.raised},
            any(walk.truncated for walk in walks.values()),
        )


def explore(program: Program, interpret: Callable[[], Predicted] | None = None) -> Exploration:
    """An exploration of a program with two ranks."""
    return Exploration(program, interpret=interpret)


__all__ = ["Exploration", "Prediction", "Scenario", "explore"]
