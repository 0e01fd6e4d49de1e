"""Gradients that are a whole factor too large or too small: the number of ranks counted twice, or not at all.

A step is right where the factors of its losses and what became of their gradients make the mean over all micro-batches and ranks.
Only numbers are reported that can hardly mean anything else, in losses that are one mean; see `_verdict`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import prod

from ddp_audit.compare.explain import frames, rank_list
from ddp_audit.compare.faults import WRONG_FACTOR, SilentFault
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RankRun, RecordedRun
from ddp_audit.events import BACKWARD, COLLECTIVE, FACTOR, GRADIENTS, REDUCING, USER, Event, Site

_LEAST = 3  # steps that must show it
_CLOSE = 3e-3

DIVIDED_BY_ALL = "divided by all"  # the loss is divided by the micro-batches of all ranks, of which each runs its own part
MULTIPLIED = "multiplied"  # by the number of ranks, between the reduction and the step
DIVIDED = "divided"
RIGHT = "right"


def wrong_factors(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """For each wrapper, a factor that its steps show on all ranks."""
    found: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for rank, event in run.events_of(FACTOR):
        found[str(event.detail.get("model", ""))][rank].append(event)
    for by_rank in groups.split(found):
        seen = Counter(verdict for verdict in _verdicts(by_rank) if verdict)
        if len(seen) == 1 and seen.total() >= _LEAST and RIGHT not in seen:
            yield _fault(run, by_rank, next(iter(seen)), seen.total())


def verdict_of(event: Event) -> str | None:
    """What one FACTOR event says by itself; None where that is nothing."""
    detail = event.detail
    passes, replicas = int(detail.get("passes") or 0), int(detail.get("replicas") or 0)
    ratio, chains = detail.get("ratio"), list(detail.get("factors") or ())
    if detail.get("hook") or not detail.get("mean") or not ratio or len(chains) != 1 or passes < 1 or replicas < 2:
        return None
    return _verdict(passes, replicas, [float(one) for one in chains[0]], float(ratio))


def _verdict(passes: int, replicas: int, chain: list[float], ratio: float) -> str | None:
    """`chain`: what each mean is multiplied by before its backward pass. `ratio`: what the reduced gradients are multiplied by.

    A chain may hold a weight (`0.5 * loss`), and a ratio comes from clipping as well, so of most numbers nothing is said.
    """
    total = prod(chain)
    if passes > 1:
        for factor in chain:
            rest = total / factor
            if is_near(factor * passes * replicas, 1) and (is_near(rest * ratio, 1) or (is_near(rest, 1) and ratio < 1)):
                return DIVIDED_BY_ALL
    if not is_near(total * passes, 1):
        return None
    if is_near(ratio, replicas):
        return MULTIPLIED
    if is_near(ratio, 1 / replicas):
        return DIVIDED
    return RIGHT if is_near(ratio, 1) else None


def is_near(value: float, other: float) -> bool:
    """Whether two factors are one number, but for rounding."""
    return abs(value - other) <= _CLOSE * other


def _verdicts(by_rank: Mapping[int, list[Event]]) -> Iterator[str | None]:
    """The verdict of each step that all ranks looked at: theirs, where it is one."""
    steps: dict[object, list[str | None]] = defaultdict(list)
    for events in by_rank.values():
        for event in events:
            steps[event.detail.get("joins"), event.detail.get("step")].append(verdict_of(event))
    return (told[0] if len(set(told)) == 1 else None for told in steps.values() if len(told) == len(by_rank))


def _fault(run: RecordedRun, by_rank: Mapping[int, list[Event]], verdict: str, steps: int) -> SilentFault:
    ranks = tuple(sorted(by_rank))
    example = next(event for event in by_rank[ranks[0]] if verdict_of(event) == verdict)
    passes, replicas = int(example.detail["passes"]), int(example.detail["replicas"])
    site = next(iter(frames(example)), None)
    looked = f"in {steps:,} steps that were looked at"
    if verdict == DIVIDED_BY_ALL:
        text = (
            f"The losses of {rank_list(ranks)} are divided by {passes * replicas}, while each step accumulates {passes} backward "
            f"passes on each of {replicas} ranks ({looked}), and DDP takes the mean over the ranks itself: the gradient is "
            f"1/{replicas} of that of the mean over all micro-batches. Divide by the {passes} of one rank."
        )
        return SilentFault(WRONG_FACTOR, ranks, site, text)
    call = _between(run.ranks[ranks[0]], example)
    by, than = (
        (f"multiplied by {replicas}", f"{replicas} times")
        if verdict == MULTIPLIED
        else (f"divided by {replicas}", f"1/{replicas} of")
    )
    how = " by an all-reduce that sums them" if call is not None and verdict == MULTIPLIED else ""
    text = (
        f"The gradients of {rank_list(ranks)} are {by}, the number of ranks, between the backward pass and the optimizer step{how} "
        f"({looked}). DDP has averaged them already, so they are {than} the mean over the ranks."
    )
    return SilentFault(WRONG_FACTOR, ranks, call or site, text)


def _between(rank: RankRun, example: Event) -> Site | None:
    """The user's last reduction between the last backward pass and the step of a FACTOR event."""
    found: Site | None = None
    for event in rank.events:
        if event.kind == BACKWARD:
            found = None
        elif event.kind == COLLECTIVE and event.origin == USER and event.op in REDUCING:
            found = next(iter(frames(event)), None)
        elif event.kind == GRADIENTS and all(
            event.detail.get(key) == example.detail.get(key) for key in ("model", "joins", "step")
        ):
            return found
    return None
