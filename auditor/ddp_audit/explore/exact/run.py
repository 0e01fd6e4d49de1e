"""The predicted run of a job: every rank interpreted, and the ranks brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddp_audit.compare.align import align
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import COLLECTIVE, GROUP, STEP, Event
from ddp_audit.explore.exact.interpreter import Interpreter
from ddp_audit.explore.exact.state import Assumption, Limits
from ddp_audit.machine.matching import COMPLETES, HANGS, Outcome, match

if TYPE_CHECKING:
    from ddp_audit.source.files import SourceFile
    from ddp_audit.source.project import Project

Bounds = Limits
OPEN = "goes on"  # the ranks agree as far as they were followed


@dataclass(slots=True)
class Run:
    """What the ranks of a job do, as far as they were followed.

    `sequences` are the events of each rank; `cut` says for a rank why it was followed no further, `raised` what ended it.
    `certain` is the number of events of a rank before the first loop that was cut short, where one was. `kind` is completes,
    hangs, aborts, or `goes on` where the ranks were cut before an end.
    """

    world_size: int
    sequences: dict[int, list[Event]]
    outcome: Outcome
    kind: str
    raised: dict[int, str] = field(default_factory=dict)
    cut: dict[int, str] = field(default_factory=dict)
    certain: dict[int, int] = field(default_factory=dict)
    assumptions: list[Assumption] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def collectives(self, rank: int) -> list[Event]:
        """The collectives of one rank, in order."""
        return [event for event in self.sequences[rank] if event.kind == COLLECTIVE]

    def divergences(self) -> list[Divergence]:
        """Where the sequences part or cross, by the comparison that recorded runs go through too."""
        return align(self.sequences, self.groups or None, complete=not self.cut)

    def local_steps(self) -> list[Event]:
        """Optimizer steps of any rank that use gradients which were never reduced."""
        return [e for events in self.sequences.values() for e in events if e.kind == STEP and e.detail.get("local")]


def predict(
    project: Project,
    entry: SourceFile,
    *,
    world_size: int = 2,
    overrides: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = (),
    limits: Limits | None = None,
) -> Run:
    """Runs an entry script on the representative ranks of a job: all of up to four, else the first two and the last.

    `overrides` are configuration values by name, with a `value` each, or plain; `arguments` are those of the script's own.
    """
    chosen = list(range(world_size)) if world_size <= 4 else [0, 1, world_size - 1]
    runs: dict[int, Interpreter] = {}
    for rank in chosen:
        it = Interpreter(project, rank, world_size, limits or Limits(), dict(overrides or {}), list(arguments))
        it.run(entry)
        runs[rank] = it
    sequences = {rank: it.events for rank, it in runs.items()}
    groups = {name: tuple(r for r in members if r in runs) for it in runs.values() for name, members in it.groups.members.items()}
    outcome = match(sequences, groups)
    cut = {rank: it.cut for rank, it in runs.items() if it.cut}
    assumptions: dict[tuple[str, int, str], Assumption] = {}
    for it in runs.values():
        for key, assumption in it.assumptions.items():
            assumptions.setdefault(key, assumption)
    return Run(
        world_size, sequences, outcome, _kind(outcome, sequences, cut),
        {rank: it.raised for rank, it in runs.items() if it.raised}, cut,
        {rank: it.uncertain for rank, it in runs.items() if it.uncertain is not None},
        sorted(assumptions.values(), key=lambda a: (a.path, a.line, a.text)),
        list(dict.fromkeys(bound for it in runs.values() for bound in it.bounds)),
        list(dict.fromkeys(note for it in runs.values() for note in it.notes)), groups,
    )  # fmt: skip


def _kind(outcome: Outcome, sequences: Mapping[int, Sequence[Event]], cut: Mapping[int, str]) -> str:
    """The outcome; a wait for a rank that was followed no further is none."""
    if outcome.kind == COMPLETES:
        return OPEN if cut else COMPLETES
    if outcome.kind == HANGS:
        arrived = [rank for rank, position in outcome.positions.items() if position >= len(sequences[rank])]
        if any(rank in cut for rank in arrived):
            return OPEN
    return outcome.kind


__all__ = ["COLLECTIVE", "GROUP", "OPEN", "Bounds", "Run", "predict"]
