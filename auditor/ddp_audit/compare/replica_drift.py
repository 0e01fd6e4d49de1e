"""Replicas that part without an error: gradients, optimizers and parameters.

Each rank has written hashes at some of its steps; equal hashes mean equal bits. Where a join lets ranks take different numbers of
steps, the steps are counted again from its end, where all ranks meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ddp_audit.compare.explain import frames, rank_list
from ddp_audit.compare.faults import GRADIENTS_DIFFER, OPTIMIZER_DIFFERS, PARAMETERS_DIFFER, STEPS_DIFFER, SilentFault
from ddp_audit.compare.left_out import left_out, sentence
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.sequence import minority
from ddp_audit.events import GRADIENTS, MADE, OPTIMIZER, PARAMETERS, SCHEDULER, Event, Site

_MOMENTS = ("step", "save", "exit", "exception")  # of one step, in order

Key = tuple[int, int, int]  # joins that have ended, steps since, moment


@dataclass(frozen=True, slots=True)
class _Parted:
    """The first place where a hash differs between replicas."""

    model: str
    key: Key
    last_equal: Key | None
    parts: list[list[int]]
    events: Mapping[int, Event]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.events))

    @property
    def site(self) -> Site | None:
        return next(iter(frames(self.events[self.ranks[0]])), None)

    @property
    def when(self) -> str:
        joins, step, moment = self.key
        after = f" since the end of join {joins}" if joins else ""
        at = _MOMENTS[moment]
        if at == "step":
            return f"after optimizer step {step}{after}"
        where = "when something was saved" if at == "save" else "at the end"
        return f"{where}, after {step} optimizer steps{after}"

    @property
    def since(self) -> str:
        last = self.last_equal
        return f"; after step {last[1]} they were still equal" if last is not None and last[:2] != self.key[:2] else ""

    @property
    def among(self) -> str:
        odd = minority(self.parts, len(self.ranks))
        return f"; {rank_list(odd)} {'differs' if len(odd) == 1 else 'differ'} from the majority" if odd else ""


def drifts(run: RecordedRun, groups: Groups, unreduced: bool, averaged: Collection[str] = ()) -> Iterator[SilentFault]:
    """What parts, in the order of cause and consequence. `unreduced`: a step used gradients of single ranks, which explains it.
    `averaged` wrappers are those whose replicas are meant to differ for some steps."""
    gradients = {found.model: found for found in _first(run, groups, GRADIENTS, _hash) if found.model not in averaged}
    parameters = [found for found in _first(run, groups, PARAMETERS, _hash) if found.model not in averaged]
    skipped = left_out(run) if gradients or parameters else None
    if skipped is not None and skipped.what == "step" and skipped.model not in averaged:
        # Steps are numbered on each rank, so what follows compares different ones.
        yield SilentFault(STEPS_DIFFER, (*skipped.ranks, *skipped.others), skipped.site, f"{sentence(skipped)} {_APART}")
        gradients.pop(skipped.model, None)
        parameters = [found for found in parameters if found.model != skipped.model]
    for one in gradients.values():
        yield _gradients_differ(one)
    optimizers: dict[str, _Parted] = {}
    for found in _first(run, groups, OPTIMIZER, _state):
        grads = gradients.get(found.model)
        if found.model not in averaged and not unreduced and (grads is None or grads.key[:2] > found.key[:2]):
            optimizers[found.model] = found
            yield _optimizer_differs(found, run)
    for found in parameters:
        yield _parameters_differ(found, _cause(found, unreduced, gradients, optimizers))


_APART = "Its parameters and the state of its optimizer are others from there on, and no later step makes them equal again."


def _hash(event: Event) -> object:
    return event.detail.get("hash")


def _state(event: Event) -> object:
    return event.detail.get("hash"), tuple(event.detail.get("settings") or ())


def _first(run: RecordedRun, groups: Groups, kind: str, value: Callable[[Event], object]) -> Iterator[_Parted]:
    """For each wrapper, the first values that differ between its replicas."""
    for model, ranks, by_key in _by_key(run, groups, kind):
        last_equal: Key | None = None
        for key, by_rank in sorted(by_key.items()):
            here = {rank: by_rank[rank] for rank in ranks if rank in by_rank}
            if len(here) < 2 or len({event.detail.get("layout") for event in here.values()}) > 1:
                continue  # ranks that keep the state of different parameters share it out
            parts: dict[object, list[int]] = defaultdict(list)
            for rank, event in here.items():
                parts[value(event)].append(rank)
            if len(parts) > 1:
                yield _Parted(model, key, last_equal, list(parts.values()), here)
                break
            last_equal = key


def _by_key(run: RecordedRun, groups: Groups, kind: str) -> Iterator[tuple[str, list[int], dict[Key, dict[int, Event]]]]:
    """The first events of a kind for each wrapper, group of replicas, and moment."""
    found: dict[str, dict[Key, dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for rank, event in run.events_of(kind):
        detail = event.detail
        at = str(detail.get("at", "step"))
        if at in _MOMENTS and (detail.get("hash") or kind == OPTIMIZER):
            key = (int(detail.get("joins") or 0), int(detail.get("step") or 0), _MOMENTS.index(at))
            found[str(detail.get("model", ""))][key].setdefault(rank, event)
    for model, by_key in sorted(found.items()):
        seen = sorted({rank for by_rank in by_key.values() for rank in by_rank})
        for ranks in groups.of(model, iter(seen)):
            yield model, ranks, by_key


def _cause(found: _Parted, unreduced: bool, gradients: Mapping[str, _Parted], optimizers: Mapping[str, _Parted]) -> str:
    if unreduced:
        return "This follows from the gradients that were not reduced."
    for earlier, what in ((gradients, "gradients"), (optimizers, "optimizers")):
        if found.model in earlier and earlier[found.model].key[:2] <= found.key[:2]:
            return f"This follows from the {what} that differ."
    return (
        "DDP broadcasts parameters once, when it is constructed, and only averages gradients later: something changed them on some "
        "ranks alone since then, or the optimizers or gradients differ."
    )


def _parameters_differ(found: _Parted, cause: str) -> SilentFault:
    text = (
        f"The parameters of {found.model or 'the model'} differ between {rank_list(found.ranks)} {found.when}{found.since}"
        f"{found.among}. {cause}"
    )
    return SilentFault(PARAMETERS_DIFFER, found.ranks, found.site, text)


def _gradients_differ(found: _Parted) -> SilentFault:
    text = (
        f"Optimizer step {found.key[1]} uses gradients of {found.model or 'the model'} that differ between "
        f"{rank_list(found.ranks)}{found.among}, although they were reduced over the ranks: something changed them on some ranks "
        "alone between the reduction and the step, or some of them are not part of it (parameters added, or unfrozen, after the "
        "wrap)."
    )
    return SilentFault(GRADIENTS_DIFFER, found.ranks, found.site, text)


def _optimizer_differs(found: _Parted, run: RecordedRun) -> SilentFault:
    settings = {rank: tuple(event.detail.get("settings") or ()) for rank, event in found.events.items()}
    first = found.events[found.ranks[0]]
    what = f"The {first.detail.get('optimizer') or 'optimizer'}s of {rank_list(found.ranks)}"
    common = set.intersection(*(set(one) for one in settings.values()))
    own = {rank: ", ".join(text for text in one if text not in common) for rank, one in settings.items()}
    if any(own.values()):
        each = "; ".join(f"{text or 'none of it'} on rank {rank}" for rank, text in list(own.items())[:4])
        text = (
            f"{what} have different settings {found.when}: {each}. {_set_at(run, first, own)}Equal gradients then move the "
            "parameters of the ranks to different places."
        )
    else:
        text = (
            f"{what} hold different state for {found.model or 'the model'} {found.when}{found.since}{found.among}. DDP sends "
            "parameters and buffers, and never the state of an optimizer: it was loaded, reset or stepped on some ranks alone."
        )
    return SilentFault(OPTIMIZER_DIFFERS, found.ranks, found.site, text)


def _set_at(run: RecordedRun, first: Event, own: Mapping[int, str]) -> str:
    """Where the settings that differ were set: in the optimizer's constructor, or after it."""
    kind = first.detail.get("optimizer")
    made: dict[int, list[Event]] = defaultdict(list)
    for rank, event in run.events_of(MADE):
        if event.detail.get("optimizer") == kind and event.time <= first.time:
            made[rank].append(event)
    matching = {
        rank: [event for event in made[rank] if set(text.split(", ")) <= set(event.detail.get("settings") or ())]
        for rank, text in own.items()
    }
    if all(matching.values()):
        sites = set.intersection(*({next(iter(event.stack), None) for event in events} for events in matching.values()))
        return f"They are those of the constructor at {sites.pop()}. " if len(sites) == 1 and None not in sites else ""
    site = _only_site(event for events in made.values() for event in events)
    later = [rank for rank, events in matching.items() if not events and made[rank]]
    if site is None or not later:
        return ""  # several optimizers, or an older trace
    stepped = _only_site(event for _, event in run.events_of(SCHEDULER) if event.detail.get("optimizer") == kind)
    by = (
        ", by an assignment or a state that was loaded"
        if stepped is None
        else f": the scheduler that steps at {stepped}, or an assignment"
    )
    return f"The optimizer is made at {site}, and {rank_list(later)} changed them later{by}. "


def _only_site(events: Iterable[Event]) -> Site | None:
    """The line of all of some events; None where there are several."""
    sites = {next(iter(event.stack), None) for event in events}
    return next(iter(sites)) if len(sites) == 1 else None
