"""Models that differ between ranks: what DDP's constructor makes of them.

Each rank gathers the number of parameters of all, and raises where another has a different one. Then rank 0 broadcasts the shapes,
and a rank with other shapes raises, while the others wait for it in the next broadcast (torch 2.13, `_verify_param_shape_across_
processes`, which calls `verify_params_across_processes` of reducer.cpp; seen in runs with gloo).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddp_audit.events import DDP_CONSTRUCTOR, Event
from ddp_audit.machine.module import ParamSpec


@dataclass(frozen=True, slots=True)
class Built:
    """A constructor call of a rank: the event of its first check, and its parameters, None where some are not known."""

    at: int
    group: str
    params: tuple[ParamSpec, ...] | None


@dataclass(frozen=True, slots=True)
class Unlike:
    """The first constructor whose models differ: how many events each rank still issues, and what the ranks that raise say."""

    kept: dict[int, int]
    raised: dict[int, str]
    at: dict[int, Event]


def built(events: Sequence[Event], since: int, group: str, params: Sequence[ParamSpec] | None) -> Built | None:
    """The constructor call that issued the events since a number; None where it checks nothing."""
    checks = (n for n in range(since, len(events)) if events[n].origin == DDP_CONSTRUCTOR and events[n].op == "all_gather")
    first = next(checks, None)
    known = params is not None and all(p.numel is not None and p.ndim is not None for p in params)
    return None if first is None else Built(first, group, tuple(params) if params is not None and known else None)


def unlike(calls: Mapping[int, Sequence[Built]], sequences: Mapping[int, Sequence[Event]]) -> Unlike | None:
    """The first constructor call, counted on each rank, whose models differ between ranks of its group."""
    for number in range(min(map(len, calls.values()), default=0)):
        here = {rank: own[number] for rank, own in calls.items()}
        if len({call.group for call in here.values()}) > 1 or any(call.params is None for call in here.values()):
            return None
        params = {rank: call.params or () for rank, call in here.items()}
        counts = {rank: len(own) for rank, own in params.items()}
        at = {rank: sequences[rank][call.at] for rank, call in here.items()}
        if len(set(counts.values())) > 1:
            raised = {rank: _count_text(rank, counts) for rank in here}
            return Unlike({rank: call.at + 1 for rank, call in here.items()}, raised, at)
        root = min(here)
        wrong = {rank: _first_unlike(params[rank], params[root]) for rank in here}
        raised = {rank: _shape_text(rank, place) for rank, place in wrong.items() if place is not None}
        if raised:
            kept = {rank: call.at + 2 if rank in raised else len(sequences[rank]) for rank, call in here.items()}
            return Unlike(kept, raised, at)
    return None


def _count_text(rank: int, counts: Mapping[int, int]) -> str:
    other = next(one for one, count in counts.items() if count != counts[rank])
    return (
        f"RuntimeError: DDP expects same model across all ranks, but Rank {rank} has {counts[rank]} params, "
        f"while rank {other} has inconsistent {counts[other]} params."
    )


def _first_unlike(own: Sequence[ParamSpec], others: Sequence[ParamSpec]) -> int | None:
    pairs = enumerate(zip(own, others, strict=True))
    return next((n for n, (a, b) in pairs if (a.numel, a.ndim, a.rows) != (b.numel, b.ndim, b.rows)), None)


def _shape_text(rank: int, place: int) -> str:
    return f"RuntimeError: [{rank}]: params[{place}] in this process appears not to match sizes of the same param in process 0."
