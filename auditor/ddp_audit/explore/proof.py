"""What a predicted run proves: that the ranks diverge for good, or step on gradients that were not reduced, and on what that rests.

A run proves nothing past a call that may send and was not followed, or past an exception that the interpreter inferred. Where
conditions were open before, each is taken the other way on all ranks, and the lengths of unknown loops are changed: what does not
change the end is not a condition of it. What is left over is named, and makes a warning of an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import COLLECTIVE, DDP_BUFFERS, DDP_CONSTRUCTOR, STEP, SYNC_BATCHNORM, USER, Event
from ddp_audit.explore.exact import FAILS, OPEN, Bounds, Job, Run, interpreted, predict, together
from ddp_audit.explore.exact.built import Unlike
from ddp_audit.explore.exact.state import ALWAYS, ASSUMED, BOUNDED, OPAQUE, Doubt, Taken
from ddp_audit.explore.main_line import Flip, main_line
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.machine.matching import ABORTS, COMPLETES, HANGS
from ddp_audit.source.project_hints import ProjectHints

if TYPE_CHECKING:
    from ddp_audit.launch import Launch
    from ddp_audit.launch.overrides import Override
    from ddp_audit.source.files import SourceFile
    from ddp_audit.source.project import Project

CHECKED = Bounds(ticks=16_000)  # of each rank of an entry that is audited: counted work, so that every machine cuts alike
_MOST_FLIPS = 6  # open conditions that are taken the other way, one by one
_MOST_NAMED = 5  # conditions that a text names
_MORE = 2  # iterations that a loop of unknown length is given in addition
_ALL_RANKS = 4  # up to this many ranks every rank is interpreted, so that the members of all groups are known
_OF_MODULES = frozenset({DDP_BUFFERS, DDP_CONSTRUCTOR, SYNC_BATCHNORM})  # sizes that follow from what a module holds


def _resting(rests_on: Sequence[str]) -> str:
    """The sentence that says what an end rests on, of which a text has room for the first few; empty for nothing."""
    if not rests_on:
        return ""
    more = f"; and {len(rests_on) - _MOST_NAMED} more" if len(rests_on) > _MOST_NAMED else ""
    return f"This rests on: {'; '.join(rests_on[:_MOST_NAMED])}{more}."


@dataclass(frozen=True, slots=True)
class Parting:
    """Ranks that part for good.

    `kind` is hangs, aborts, or fails where a constructor finds models that differ; `stops` the event in which a rank stands (None
    where it has ended), `condition` what sent them there, and `rests_on` what was assumed on the way and could change it.
    """

    kind: str
    stops: dict[int, Event | None]
    condition: Taken | None
    explanation: str
    rests_on: tuple[str, ...] = ()

    @property
    def resting(self) -> str:
        """The sentence that says what this rests on; empty where it is proven."""
        return _resting(self.rests_on)


@dataclass(frozen=True, slots=True)
class LocalStep:
    """An optimizer step of `ranks` on gradients of the parameters `names` that were never reduced, at its first time."""

    event: Event
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    steps: int  # how many such steps were seen on a rank at this place
    rests_on: tuple[str, ...] = ()

    @property
    def resting(self) -> str:
        """The sentence that says what this rests on; empty where it is proven."""
        return _resting(self.rests_on)


def job_of_script(
    project: Project,
    entry: SourceFile,
    launch: Launch | None,
    overrides: Mapping[str, Override],
    bounds: Bounds = CHECKED,
    hints: ProjectHints | None = None,
) -> Job:
    """The job of a script: that of a launch, or two ranks where nobody says how many. `hints` is what the settings say of it."""
    world_size = None if launch is None else launch.world_size
    arguments = () if launch is None else launch.script_args
    return Job(project, entry, world_size or 2, overrides, tuple(arguments), bounds, world_size is None, hints or ProjectHints())


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted run and what it proves: the source of findings, and of every report that speaks of the run.

    `kind` is that of the run, but `goes on` where the run hangs or is aborted for reasons that are not known for sure, or where it
    completes past a loop that was cut short, and `fails` where ranks wait for one that an exception of the program ended: the
    launcher then stops them. `why` says why it is no more.
    """

    run: Run
    kind: str
    why: str
    parting: Parting | None
    steps: tuple[LocalStep, ...]
    job: Job | None = None
    flips: tuple[Flip, ...] = ()  # what the main line takes otherwise than the defaults

    def without(self, places: Set[tuple[str, int]]) -> Run | None:
        """The run in which forwards through a wrapper at lines send nothing, as through its module; None where there is no job."""
        return None if self.job is None else predict(replace(self.job, without=frozenset(places)))

    def whole_without(self, places: Set[tuple[str, int]]) -> Run | None:
        """The same run where it comes to its end, or to one that is proven; else None."""
        run = self.without(places)
        if run is None or self.job is None or run.is_whole:
            return run
        found = parting(replace(self.job, without=frozenset(places)), run)
        return run if found is not None and not found.rests_on else None

    def may_average_after(self, path: str, first: int, last: int) -> bool:
        """Whether the program may average parameters after a step in these lines: it sends as many elements as models have.

        A library whose sends are not followed may do so too.
        """
        run = self.run
        if any(doubt.kind == OPAQUE for doubts in run.doubts.values() for doubt in doubts):
            return True
        for events in run.sequences.values():
            places = [(n, _place(e)) for n, e in enumerate(events) if e.kind == STEP]
            at = [n for n, place in places if place is not None and place[0] == path and first <= place[1] <= last]
            held = sum(e.numel or 0 for e in events if e.origin == DDP_CONSTRUCTOR and e.op == "broadcast" and _is_float(e))
            sent = sum(e.numel or 0 for e in events[at[0] :] if _may_hold_parameters(e)) if at else 0
            if 0 < held <= sent:
                return True
        return False

    def refutes(self, places: Set[tuple[str, int]]) -> bool:
        """Whether ranks took one of these places apart, and the whole run ends in order with equal sequences all the same.

        Under the conditions of a proof: nothing was assumed, cut, opaque or inferred. Where nobody says how many ranks there are,
        a job of more has to end so too.
        """
        if self.job is None or not _surely_completes(self.run) or not self.run.took_apart(places):
            return False
        if not self.job.is_open or self.run.world_size >= _ALL_RANKS:
            return True
        return _surely_completes(predict(replace(self.job, world_size=_ALL_RANKS, is_open=False)))

    def passes_by(self, place: tuple[str, int]) -> bool:
        """Whether the whole run ends in order without a rank at a place, with nothing unknown; a job of more ranks too."""
        if self.job is None or not _surely_completes(self.run) or place in self.run.lines:
            return False
        if not self.job.is_open or self.run.world_size >= _ALL_RANKS:
            return True
        wider = predict(replace(self.job, world_size=_ALL_RANKS, is_open=False))
        return _surely_completes(wider) and place not in wider.lines


def _surely_completes(run: Run) -> bool:
    """Whether a run was followed to its end with nothing unknown, and its ranks issue the same."""
    whole = run.kind == COMPLETES and run.is_whole and run.outcome.certain and run.world_size == len(run.sequences)
    return whole and not any(run.doubts.values()) and not run.bounds and all(map(_is_harmless, run.divergences()))


def _is_harmless(divergence: Divergence) -> bool:
    """Whether ranks met in one barrier from different places: it carries no value."""
    return divergence.is_notice and all(event is not None and event.op == "barrier" for event in divergence.ranks.values())


def predicted(job: Job, *, both_ways: bool = False) -> Predicted:
    """The run of a job, judged. `both_ways` is that of `explore.exact.predict`."""
    job, flips = main_line(job)
    run = predict(job, both_ways=both_ways)
    found, kind, why = parting(job, run), run.kind, run.why
    if found is not None:
        kind = found.kind
    elif kind in (HANGS, ABORTS) or (kind == OPEN and run.outcome.kind in (HANGS, ABORTS) and not run.cut):
        ended = [r for r, place in run.outcome.positions.items() if r in run.raised and place >= len(run.sequences[r])]
        doubts = _doubts_before(run, run.outcome.positions)
        kind = FAILS if ended and not doubts else OPEN
        why = next((doubt.what for doubt in doubts if doubt.kind not in (ASSUMED, BOUNDED)), doubts[0].what if doubts else "")
    elif run.seen_kind != kind:
        cut_short = (doubt.what for doubts in run.doubts.values() for doubt in doubts if doubt.kind == BOUNDED)
        kind, why = run.seen_kind, next(cut_short, run.why)
    return Predicted(run, kind, why, found, tuple(local_steps(job, run)), job, flips)


def parting(job: Job, run: Run) -> Parting | None:
    """The end of a run in which ranks wait forever; None where it has none, or where something that is not known decides it."""
    if run.unlike is not None:
        return _models_differ(job, run, run.unlike)
    if run.kind not in (HANGS, ABORTS):
        return None
    ends = run.outcome.positions
    stops = {rank: events[ends[rank]] if ends[rank] < len(events) else None for rank, events in run.sequences.items()}
    if any(event is None and rank in run.raised for rank, event in stops.items()):
        return None  # an exception that nobody catches ends the job: the launcher stops the other ranks
    if run.world_size > _ALL_RANKS and run.groups:
        return None
    if run.opaque and any(event is not None and event.origin in _OF_MODULES for event in stops.values()):
        return None
    rests_on = _rests_on(job, run, dict(ends), stops)
    if rests_on is None:
        return None
    if not run.outcome.certain:
        rests_on = (*rests_on, "a rank takes the layout of its buckets from a message that was meant for something else")
    return Parting(run.kind, stops, run.parting(), run.outcome.explanation, rests_on)


def _models_differ(job: Job, run: Run, found: Unlike) -> Parting | None:
    """Models that differ between ranks: the constructor raises on some of them, and the others wait for these."""
    ends = {rank: run.sequences[rank].index(event) for rank, event in found.at.items()}
    stops: dict[int, Event | None] = dict(found.at)
    rests_on = _rests_on(job, run, ends, stops)
    texts = "; ".join(f"rank {rank}: {text}" for rank, text in sorted(found.raised.items()))
    return None if rests_on is None else Parting(FAILS, stops, None, texts, rests_on)


def _rests_on(job: Job, run: Run, ends: dict[int, int], stops: dict[int, Event | None]) -> tuple[str, ...] | None:
    """What the end rests on; None where it cannot be said, or where it rests on something that is not followed."""
    before = _before(run, ends)
    if before is None:
        return None
    assumed = {doubt.key: doubt.what for doubt in before if doubt.kind == ASSUMED and doubt.key is not None}
    bounded = [doubt.what for doubt in before if doubt.kind == BOUNDED]
    if not assumed and not bounded:
        return ()
    most = 2 + max(sum(e.kind == COLLECTIVE for e in run.sequences[rank][: ends[rank]]) for rank in ends)
    shorter = replace(job, limits=replace(job.limits, events=most))
    tried = [key for key in assumed if _ends_alike(shorter, stops, key)] if len(assumed) <= _MOST_FLIPS else []
    left = [what for key, what in assumed.items() if key not in tried]
    asked = [{doubt.key for doubt in doubts} for doubts in run.doubts.values()]
    if any(key not in tried and not all(key in own for own in asked) for key in assumed):
        return None  # ranks ask different things, and what one rank reads may be what another has sent
    if bounded:
        longer = replace(shorter, limits=replace(shorter.limits, unknown_loop=job.limits.unknown_loop + _MORE, events=2 * most))
        if not _ends_alike(longer, stops, None):
            return None
    return (*left, *bounded)


def _ends_alike(job: Job, stops: dict[int, Event | None], key: tuple[str, int, str] | None) -> bool:
    """Whether the ranks still stand at the same places where an open condition is taken the other way."""
    run = together(job, interpreted(job, None if key is None else {key: ALWAYS}))
    if run.unlike is not None:
        return all(_place(run.unlike.at.get(rank)) == _place(event) for rank, event in stops.items())
    if run.kind not in (HANGS, ABORTS):
        return False
    ends = run.outcome.positions
    return all(
        _place(events[ends[rank]] if ends[rank] < len(events) else None) == _place(stops[rank])
        for rank, events in run.sequences.items()
    )


def _place(event: Event | None) -> tuple[str, int] | None:
    return None if event is None or event.site is None else (event.site.path, event.site.line)


def _before(run: Run, ends: dict[int, int]) -> list[Doubt] | None:
    """The doubts before the ends of the ranks; None where one of them leaves nothing proven."""
    found = _doubts_before(run, ends)
    return found if all(doubt.kind in (ASSUMED, BOUNDED) for doubt in found) else None


def _doubts_before(run: Run, ends: Mapping[int, int]) -> list[Doubt]:
    return [doubt for rank, doubts in run.doubts.items() for doubt in doubts if doubt.at <= ends[rank]]


def local_steps(job: Job, run: Run) -> list[LocalStep]:
    """The optimizer steps on gradients that were not reduced, one a place; none where the program may reduce them itself.

    Nor where the run ends in an exception: for parameters without a gradient the reducer raises one in the next forward.
    """
    if run.opaque or run.raised or any(_may_average(events) for events in run.sequences.values()):
        return []
    places: dict[tuple[str, int], dict[int, list[int]]] = {}
    for rank, events in run.sequences.items():
        for position, event in enumerate(events[: run.stops.get(rank, len(events))]):
            place = _place(event)
            if event.detail.get("local") and place is not None:
                places.setdefault(place, {}).setdefault(rank, []).append(position)
    found = []
    for ranks in places.values():
        before = _before(run, {rank: ranks[rank][0] if rank in ranks else -1 for rank in run.sequences})
        if before is not None:
            first = run.sequences[min(ranks)][ranks[min(ranks)][0]]
            names, rests_on = tuple(first.detail["local"]), tuple(dict.fromkeys(doubt.what for doubt in before))
            found.append(LocalStep(first, tuple(sorted(ranks)), names, max(map(len, ranks.values())), rests_on))
    return found


def _may_average(events: Sequence[Event]) -> bool:
    """Whether a rank sends tensors of its own that can be gradients or parameters. One number is a loss or a count."""
    return any(_may_hold_parameters(e) and e.numel != 1 for e in events)


def _may_hold_parameters(e: Event) -> bool:
    return e.kind == COLLECTIVE and e.origin == USER and is_kind(str(e.op), "keeps-elements")


def _is_float(e: Event) -> bool:
    return e.dtype is not None and "float" in e.dtype


def sites_of(parting: Parting) -> Iterable[tuple[str, int]]:
    """The lines that the ranks stand in."""
    return dict.fromkeys(place for place in map(_place, parting.stops.values()) if place is not None)
