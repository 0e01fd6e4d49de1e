"""Parts of a step that one rank left out: a batch without a forward, a forward without an optimizer step.

The later effect (a collective without its rank, gradients that differ) is often all that the sequences show, and it names another
line. Passes are compared by their number: the k-th forward with gradients of a wrapper meets the k-th of every other replica.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ddp_audit.compare.explain import capital, frames, rank_list
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import EXITED, RecordedRun, forgotten, of_kinds
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import BATCH, FORWARD, STEP, Event, Site

_LED_TO = frozenset({"operation", "missing-rank", "extra"})  # kinds of divergence that a part left out can lead to


@dataclass(slots=True)
class _Pass:
    """One forward with gradients: the batches taken for it, and the optimizer steps after it."""

    forward: Event
    batches: int
    taken: Site | None
    steps: list[Event] = field(default_factory=list)


class LeftOut(NamedTuple):
    """What replicas left out: batches or steps of `model`. `number` counts forwards with gradients, from 1: the one that the batch
    came before, or that the step was to follow."""

    what: str
    model: str
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    number: int
    site: Site | None


def left_out(run: RecordedRun) -> LeftOut | None:
    """The first part of a step that some replicas of a wrapper left out and others did not; None where the passes are alike."""
    if run.world_size < 2:
        return None
    passes: dict[str, dict[int, list[_Pass]]] = defaultdict(dict)
    for rank, one in sorted(run.ranks.items()):
        for model, of_model in _passes(of_kinds(one.events, BATCH, FORWARD, STEP)).items():
            passes[model][rank] = of_model
    groups = Groups(run)
    found: list[LeftOut] = []
    for model, by_rank in passes.items():
        for ranks in groups.of(model, by_rank):
            first = _first(model, {rank: by_rank[rank] for rank in ranks}, run)
            found += [] if first is None else [first]
    return min(found, key=lambda one: one.number, default=None)


def _passes(events: Iterable[Event]) -> dict[str, list[_Pass]]:
    """The passes of each wrapper on one rank. A batch belongs to the next forward if it is from the loader of that one's own."""
    found: dict[str, list[_Pass]] = defaultdict(list)
    waiting: list[Event] = []
    for event in events:
        if event.kind == BATCH:
            waiting.append(event)
        elif event.kind == STEP:
            for model in event.detail.get("models") or ():
                if found.get(str(model)):
                    found[str(model)][-1].steps.append(event)
        elif event.detail.get("grad"):
            last = waiting[-1] if waiting else None
            own = 0 if last is None else sum(_source(one) == _source(last) for one in waiting)
            taken = None if last is None else next(iter(frames(last)), None)
            found[str(event.detail.get("model", ""))].append(_Pass(event, own, taken))
            waiting.clear()
    return found


def _source(batch: Event) -> object:
    return batch.detail.get("loader"), frames(batch)


def _first(model: str, by_rank: Mapping[int, Sequence[_Pass]], run: RecordedRun) -> LeftOut | None:
    shared = min(map(len, by_rank.values()))
    whole = {rank for rank in by_rank if run.ranks[rank].state == EXITED}
    for k in range(shared):
        row = {rank: found[k] for rank, found in by_rank.items()}
        more = _apart(row, lambda one: one.batches, max)
        if more is not None:
            return LeftOut("batch", model, *more, k + 1, row[more[0][0]].taken)
        # The steps after the last forward of a rank may still be to come.
        ended = {rank: one for rank, one in row.items() if k + 1 < len(by_rank[rank]) or rank in whole}
        less = _apart(ended, lambda one: len(one.steps), min) if len(ended) == len(row) else None
        if less is not None:
            taken = next(one.steps[0] for rank, one in row.items() if rank in less[1])
            return LeftOut("step", model, *less, k + 1, next(iter(frames(taken)), None))
    return None


def _apart(
    row: Mapping[int, _Pass], count: Callable[[_Pass], int], odd: Callable[[Sequence[int]], int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The ranks whose number is the greatest or the least of two that there are, and the others."""
    numbers = {rank: count(one) for rank, one in row.items()}
    values = Counter(numbers.values())
    if len(values) != 2 or (0 in values and odd is max):
        return None
    end = odd(list(values))
    apart = tuple(rank for rank, number in numbers.items() if number == end)
    return apart, tuple(rank for rank in numbers if rank not in apart)


def told(run: RecordedRun, divergence: Divergence) -> str:
    """What to say of it at a divergence, as sentences; empty where passes are alike, or where it does not lead to this one."""
    if divergence.kind not in _LED_TO or divergence.message is not None:
        return ""
    if any(one.lost or forgotten(one.events) for one in run.ranks.values()):  # the passes of the ranks cannot be numbered
        return ""
    found = left_out(run)
    if found is not None:
        return f"{sentence(found)} {_CONSEQUENCE[found.what]}"
    return _counts(run, sorted(rank for rank in divergence.ranks if rank in run.ranks))


def sentence(found: LeftOut) -> str:
    """What was left out, by whom and where."""
    who, at = rank_list(found.ranks), "" if found.site is None else f" at {found.site}"
    if found.what == "batch":
        before = f"before training forward {found.number:,} of {found.model}"
        return f"{capital(who)} took a batch{at} and ran no forward with it, {before}."
    others = f"{rank_list(found.others)} made one{' each' if len(found.others) > 1 else ''}"
    return f"{capital(who)} made no optimizer step after training forward {found.number:,} of {found.model}, where {others}{at}."


_CONSEQUENCE = {
    "batch": "From there on its passes meet the next ones of the others, and at the end one is lacking.",
    "step": "From there on the replicas differ.",
}


def _counts(run: RecordedRun, ranks: Sequence[int]) -> str:
    """How many forwards with gradients the ranks have begun, where that differs."""
    begun: dict[int, list[int]] = defaultdict(list)
    for rank in ranks:
        begun[sum(bool(event.detail.get("grad")) for event in of_kinds(run.ranks[rank].events, FORWARD))].append(rank)
    if len(begun) < 2:
        return ""
    each = ", ".join(f"{number:,} on {rank_list(who)}" for number, who in sorted(begun.items(), key=lambda item: item[1]))
    return f"Training forwards begun by then: {each}."
