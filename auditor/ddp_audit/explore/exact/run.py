"""The predicted run of a job: every rank interpreted, and the ranks brought together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddp_audit.compare.align import align
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import COLLECTIVE, GROUP, STEP, Event
from ddp_audit.explore.exact import early, generators, settings, totals
from ddp_audit.explore.exact.built import Unlike, unlike
from ddp_audit.explore.exact.interpreter import Interpreter
from ddp_audit.explore.exact.state import ASSUMED_TORCH, RANK, VERSION, Assumption, Doubt, Limits, Machine, Taken
from ddp_audit.machine.join import JoinBlock
from ddp_audit.machine.matching import ABORTS, COMPLETES, HANGS, Outcome, match
from ddp_audit.source.project_hints import ProjectHints

if TYPE_CHECKING:
    from ddp_audit.source.files import SourceFile
    from ddp_audit.source.project import Project

Bounds = Limits
_MOST_VARIANTS = 4
_MOST_JOINED = 16  # ranks of a job with blocks under join
_MOST_WANTED = 16  # ranks of a job whose program says how many it needs
OPEN = "goes on"  # the ranks agree as far as they were followed
FAILS = "fails"  # an exception ends ranks, and no other rank waits for them
NOTHING = "nothing predicted"  # no process group was made, or no optimizer step was reached


@dataclass(frozen=True, slots=True)
class Variant:
    """What comes of it where one rank alone takes an open condition the other way at its `asked`-th time, counted from 0."""

    assumption: Assumption
    rank: int
    asked: int
    run: Run


@dataclass(slots=True)
class Run:
    """What the ranks of a job do, as far as they were followed.

    `sequences` are the events of each rank; `cut` says for a rank why it was followed no further, `raised` what ended it.
    `certain` is the number of events of a rank before the first loop that was cut short, where one was. `kind` is completes,
    hangs, aborts, fails, `goes on` where the ranks were cut before an end, or `nothing predicted`, of which `why` is the reason.
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
    variants: list[Variant] = field(default_factory=list)
    answers: dict[int, dict[tuple[str, int, str, int], bool]] = field(default_factory=dict)
    opaque: bool = False  # whether a wrapped module has parameters or buffers that are not known
    doubts: dict[int, list[Doubt]] = field(default_factory=dict)  # of each rank, in order
    moments: dict[int, dict[tuple[str, int, str, int], int]] = field(default_factory=dict)  # events before each of the answers
    why: str = ""
    lines: set[tuple[str, int]] = field(default_factory=set)  # of the statements that some rank ran
    unlike: Unlike | None = None  # the constructor call whose models differ between ranks
    summed_again: dict[int, list[totals.SummedAgain]] = field(default_factory=dict)  # running totals that were, by rank
    unequal: list[settings.Unequal] = field(default_factory=list)  # settings of steps that differ between ranks
    early_uses: dict[early.Read, tuple[str, int]] = field(default_factory=dict)  # of ranks that were read without a group

    @property
    def assumed_torch(self) -> str:
        """The version of torch, where the program asked for it and nobody had said which; else empty."""
        asked = any(doubt.key == VERSION for doubts in self.doubts.values() for doubt in doubts)
        return ".".join(map(str, ASSUMED_TORCH)) if asked else ""

    @property
    def is_whole(self) -> bool:
        """Whether every rank was followed to the end of the program, with modules that are wholly known."""
        return not (self.cut or self.certain or self.raised or self.opaque)

    @property
    def seen_kind(self) -> str:
        """The kind, but `goes on` for a run that completes past a loop that was cut short: its later iterations were not seen."""
        return OPEN if self.kind == COMPLETES and self.certain else self.kind

    def was_assumed(self, path: str, line: int) -> bool:
        """Whether a condition at a place was open, and taken by the policy for such."""
        return any((a.path, a.line) == (path, line) for a in self.assumptions)

    def took_apart(self, places: Set[tuple[str, int]]) -> bool:
        """Whether two ranks answered a condition at one of these places differently at the same time."""
        answers: dict[tuple[str, int, str, int], set[bool]] = {}
        for said in self.answers.values():
            for key, answer in said.items():
                if key[:2] in places:
                    answers.setdefault(key, set()).add(answer)
        return any(len(found) > 1 for found in answers.values())

    def guard_of(self, rank: int, event: Event) -> Taken | None:
        """The innermost condition around an event of a rank that another rank took the other way."""
        for taken in reversed(event.detail.get("guards", ())):
            if any(said.get(taken.key, taken.answer) != taken.answer for other, said in self.answers.items() if other != rank):
                found: Taken = taken
                return found
        return None

    def parting(self) -> Taken | None:
        """The condition that sent the ranks to different events where they diverge: the last one before it that they took apart.

        None where no condition did, as where a function is chosen from a table by rank.
        """
        stops = self.outcome.positions
        for rank, events in self.sequences.items():
            if stops[rank] < len(events) and (guard := self.guard_of(rank, events[stops[rank]])) is not None:
                return guard
        places = {rank: [n for n, e in enumerate(events) if e.kind == COLLECTIVE] for rank, events in self.sequences.items()}
        met = min(sum(place < stops[rank] for place in own) for rank, own in places.items())
        latest, found = -1, None
        for rank, said in self.answers.items():
            since = places[rank][met - 1] + 1 if met else 0
            for key, answer in said.items():
                moment = self.moments[rank][key]
                if max(since, latest) <= moment <= stops[rank]:
                    others = (answered.get(key, answer) for other, answered in self.answers.items() if other != rank)
                    if any(other != answer for other in others):
                        latest, found = moment, Taken(*key, answer)
        return found

    @property
    def stops(self) -> dict[int, int]:
        """The event at which each rank stands forever, by rank; empty where the run does not hang and is not aborted."""
        return dict(self.outcome.positions) if self.kind in (HANGS, ABORTS) else {}

    def collectives(self, rank: int) -> list[Event]:
        """The collectives of one rank, in order."""
        return [event for event in self.sequences[rank] if event.kind == COLLECTIVE]

    def divergences(self) -> list[Divergence]:
        """Where the sequences part or cross, by the comparison that recorded runs go through too."""
        return align(self.sequences, self.groups or None, complete=not self.cut)

    def local_steps(self) -> list[Event]:
        """Optimizer steps of any rank that use gradients which were never reduced."""
        return [e for events in self.sequences.values() for e in events if e.kind == STEP and e.detail.get("local")]


Contrary = Mapping[tuple[str, int, str], int]
Blocks = Mapping[tuple[str, int], JoinBlock]


@dataclass(frozen=True, slots=True)
class Job:
    """A script and how it is started. `overrides` are values by name, with a `value` each, or plain."""

    project: Project
    entry: SourceFile
    world_size: int = 2
    overrides: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    is_open: bool = False  # whether nobody said how many ranks there are
    hints: ProjectHints = field(default_factory=ProjectHints)  # what the settings say of torch and of libraries
    without: frozenset[tuple[str, int]] = frozenset()  # lines of forwards through a wrapper that send nothing, for a what-if
    settings: Mapping[str, Any] = field(default_factory=dict)  # options that are taken otherwise than their defaults
    contrary: Contrary = field(default_factory=dict)  # open conditions that are
    machine: Machine = field(default_factory=Machine)

    def run(
        self, rank: int, contrary: Contrary | None = None, blocks: Blocks | None = None, before: Sequence[Interpreter] = ()
    ) -> Interpreter:
        """One rank, run; `contrary` open conditions are taken the other way at their n-th time, `blocks` are those under join.

        `before` are lower ranks that were run before it: the root of a wrapper decides on the layout of rebuilt buckets.
        """
        settings = {name: rank if value is RANK else value for name, value in self.settings.items()}
        overrides = {**self.overrides, **settings}
        it = Interpreter(self.project, rank, self.world_size, self.limits, overrides, list(self.arguments))
        it.contrary, it.torch, it.without = {**self.contrary, **(contrary or {})}, self.hints.torch, self.without
        it.stubs = self.hints.stubs
        it.blocks, it.machine = blocks, self.machine
        for other in before:
            it.rebuilds = {**other.rebuilds, **it.rebuilds}
        try:
            it.run(self.entry)
        finally:
            generators.close_all(it)
        return it

    def grown(self, runs: Mapping[int, Interpreter]) -> Job:
        """The job with as many ranks as its program turned out to need, where nobody said how many there are."""
        wanted = max((it.wanted for it in runs.values()), default=0)
        return replace(self, world_size=wanted) if self.is_open and self.world_size < wanted <= _MOST_WANTED else self

    @property
    def ranks(self) -> list[int]:
        """The representative ranks: all of up to four, else the first two and the last."""
        return list(range(self.world_size)) if self.world_size <= 4 else [0, 1, self.world_size - 1]


def predict(job: Job, *, both_ways: bool = False) -> Run:
    """The run of a job. With `both_ways` also what comes of it where ranks differ in a condition on data of their own."""
    runs = interpreted(job)
    job = job.grown(runs)
    if job.world_size > len(runs) and job.is_open:
        runs = interpreted(job)
    run = together(job, runs)
    if both_ways and job.world_size > 1:
        local = [a for a in run.assumptions if a.local][:_MOST_VARIANTS]
        run.variants = [variant(job, runs, a, 0, 0) for a in local]
    return run


def interpreted(job: Job, contrary: Contrary | None = None) -> dict[int, Interpreter]:
    """Every rank, run; all of them take the open conditions in `contrary` the other way.

    Where there are blocks under join they are run twice: each needs the inputs of all to be predicted.
    """
    runs = _in_order(job, job.ranks, contrary)
    if not any(it.joins for it in runs.values()):
        return runs
    to_the_end = replace(job, limits=replace(job.limits, steps=None))
    everybody = _in_order(to_the_end, range(min(job.world_size, _MOST_JOINED)), contrary)
    groups = {name: ranks for it in everybody.values() for name, ranks in it.groups.members.items()}
    blocks: dict[tuple[str, int], JoinBlock] = {}
    for key in dict.fromkeys(key for it in everybody.values() for key in it.joins):
        inside = {rank: it.joins[key] for rank, it in everybody.items() if key in it.joins}
        if set(inside) != set(groups[key[0]]) or any(it.cut for it in everybody.values()):
            for it in runs.values():
                it.bounds.setdefault("DDP's join() is not followed where ranks enter it a different number of times, or are many")
                it.uncertain = 0 if it.uncertain is None else it.uncertain
            return runs
        blocks[key] = JoinBlock(inside)
    return _in_order(job, job.ranks, contrary, blocks)


def _in_order(job: Job, ranks: Iterable[int], contrary: Contrary | None, blocks: Blocks | None = None) -> dict[int, Interpreter]:
    runs: dict[int, Interpreter] = {}
    for rank in ranks:
        runs[rank] = job.run(rank, contrary, blocks, list(runs.values()))
    return runs


def variant(job: Job, runs: Mapping[int, Interpreter], assumption: Assumption, rank: int, asked: int) -> Variant:
    """The run of a job in which one rank alone takes a condition the other way once."""
    key = (assumption.path, assumption.line, assumption.text)
    before = [it for other, it in runs.items() if other < rank]
    return Variant(assumption, rank, asked, together(job, {**runs, rank: job.run(rank, {key: asked}, runs[rank].blocks, before)}))


def together(job: Job, runs: Mapping[int, Interpreter]) -> Run:
    """The run that interpreted ranks make when they meet."""
    sequences = {rank: it.events for rank, it in sorted(runs.items())}
    differs = unlike({rank: it.built for rank, it in sorted(runs.items())}, sequences) if len(runs) > 1 else None
    if differs is not None:
        sequences = {rank: events[: differs.kept[rank]] for rank, events in sequences.items()}
    members = {name: ranks for it in runs.values() for name, ranks in it.groups.members.items()}
    groups = {name: tuple(r for r in ranks if r in runs) for name, ranks in members.items()}
    outcome = match(sequences, groups)
    cut = {rank: it.cut for rank, it in runs.items() if it.cut}
    raised = {rank: it.raised for rank, it in runs.items() if it.raised}
    if differs is not None:
        raised = differs.raised
        cut = {rank: why for rank, why in cut.items() if rank not in raised}
    why = _nothing(runs) if differs is None else ""
    lost = {rank for rank, it in runs.items() if it.raised and (it.inferred or it.doubts)}
    inferred = bool(lost)
    astray = differs is None and (inferred or any(it.astray for it in runs.values()))
    assumptions: dict[tuple[str, int, str], Assumption] = {}
    for it in runs.values():
        for key, assumption in it.assumptions.items():
            assumptions.setdefault(key, assumption)
    return Run(
        job.world_size, sequences, outcome, _kind(outcome, sequences, {*cut, *lost}, astray, raised, why),
        raised, cut,
        {rank: it.uncertain for rank, it in runs.items() if it.uncertain is not None},
        sorted(assumptions.values(), key=lambda a: (a.path, a.line, a.text)),
        list(dict.fromkeys(bound for it in runs.values() for bound in it.bounds)),
        list(dict.fromkeys(note for it in runs.values() for note in it.notes)), groups, [],
        {rank: it.answers for rank, it in runs.items()},
        any(not wrapper.ddp.spec.exact for it in runs.values() for wrapper in it.wrappers),
        {rank: list(it.doubts.values()) for rank, it in runs.items()},
        {rank: it.moments for rank, it in runs.items()}, why, set().union(*(it.lines for it in runs.values())), differs,
        {rank: totals.settled(it) for rank, it in runs.items()},
        settings.unequal(dict(sorted(runs.items()))),
        {read: use for it in runs.values() for read, use in it.early_uses.items()},
    )  # fmt: skip


def _nothing(runs: Mapping[int, Interpreter]) -> str:
    """Why a run says nothing of a training; empty where it does."""
    if not any(it.grouped for it in runs.values()):
        return "no process group is made"
    if any(it.optimizers for it in runs.values()) and not any(it.steps for it in runs.values()):
        return "no optimizer step is reached"
    return ""


def _kind(
    outcome: Outcome,
    sequences: Mapping[int, Sequence[Event]],
    lost: Set[int],
    astray: bool,
    raised: Mapping[int, str],
    why: str,
) -> str:
    """The outcome; a wait for a rank that was followed no further is none, nor is an end past what was not followed.

    `lost` are ranks that were followed no further, or ended by an exception that may not come.
    """
    if outcome.kind == COMPLETES:
        if why:
            return NOTHING
        if raised and not astray:
            return FAILS
        return OPEN if lost or astray else COMPLETES
    if outcome.kind == HANGS:
        arrived = [rank for rank, position in outcome.positions.items() if position >= len(sequences[rank])]
        if any(rank in lost for rank in arrived):
            return OPEN
    return outcome.kind


__all__ = [
    "COLLECTIVE",
    "FAILS",
    "GROUP",
    "NOTHING",
    "OPEN",
    "Bounds",
    "Job",
    "Run",
    "Variant",
    "interpreted",
    "predict",
    "together",
    "variant",
]
