"""Wrappers whose parameters the program averages by itself, as local SGD does: steps on gradients of single ranks are meant there.

Seen in a trace: between a step and the next forward, the script reduces as many elements as the wrapper trains, or more. That is
what an average of the parameters carries, tensor by tensor or flattened; a metric or a flag is smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ddp_audit.compare.run import RankRun, RecordedRun, of_kinds
from ddp_audit.events import COLLECTIVE, FORWARD, PARAMETERS, STEP, USER, WRAP, Event

_AVERAGING = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast"})


def averaged_models(run: RecordedRun, models: Collection[str]) -> set[str]:
    """Those of some wrappers whose parameters every rank that trains them brings together after steps."""
    found: set[str] = set()
    for model in models:
        holders = [one for one in run.ranks.values() if _elements(one, model) is not None]
        if len(holders) > 1 and all(_averages(one, model) for one in holders) and not _apart_at_the_end(run, holders, model):
            found.add(model)
    return found


def _elements(one: RankRun, model: str) -> int | None:
    """How many elements a wrapper trains; None where a rank has no such wrapper, or the trace does not list them all."""
    for event in of_kinds(one.events, WRAP):
        if event.detail.get("model") == model:
            listed = event.detail.get("parameters") or ()
            return sum(int(numel) for _, numel, _ in listed) or None
    return None


def _averages(one: RankRun, model: str) -> bool:
    return bool(_windows(one, model))


def _windows(one: RankRun, model: str) -> list[int]:
    """The numbers of a wrapper's steps after which a rank reduced as much as the wrapper trains."""
    enough = _elements(one, model) or 0
    steps, carried = 0, Counter[int]()
    is_after = False
    for event in of_kinds(one.events, STEP, FORWARD, COLLECTIVE):
        if event.kind == STEP and model in (event.detail.get("models") or ()):
            steps, is_after = steps + 1, True
        elif event.kind == FORWARD and event.detail.get("model") == model:
            is_after = False
        elif is_after and event.kind == COLLECTIVE and event.origin == USER and event.op in _AVERAGING:
            carried[steps] += event.numel or 0
    return [step for step, numel in carried.items() if numel >= enough]


def _apart_at_the_end(run: RecordedRun, holders: Sequence[RankRun], model: str) -> bool:
    """Whether the parameters differ at the end though all ranks had just brought something together: that was not them."""
    ends: list[Event] = []
    for one in holders:
        last = sum(model in (e.detail.get("models") or ()) for e in of_kinds(one.events, STEP))
        if not last or last not in _windows(one, model):
            return False
        ends += [e for e in of_kinds(one.events, PARAMETERS) if e.detail.get("model") == model and e.detail.get("at") == "exit"]
    return len({event.detail.get("hash") for event in ends}) > 1
