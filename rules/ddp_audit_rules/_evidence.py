"""What a recorded run knows of silent faults, batches and samplers, as witnesses ask for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import prod

from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.run import RecordedRun, same_file
from ddp_audit.events import BATCH, FORWARD, SAMPLER, Event
from ddp_audit.findings import Finding, Span


def has_fault(run: RecordedRun, *kinds: str) -> bool:
    """Whether the run shows a silent fault of one of these kinds."""
    from ddp_audit.compare.silent import silent_faults  # which an audit does not need

    return any(fault.kind in kinds for fault in silent_faults(run))


def faults_at(run: RecordedRun, kind: str, span: Span) -> list[SilentFault]:
    """The silent faults of a kind whose line is within a span."""
    from ddp_audit.compare.silent import silent_faults

    last = span.end_line or span.line
    found = ((fault, fault.site) for fault in silent_faults(run) if fault.kind == kind)
    return [f for f, site in found if site is not None and span.line <= site.line <= last and same_file(site.path, span.path)]


def looks_at(run: RecordedRun, kind: str, span: Span) -> dict[int, list[Event]]:
    """The events of a kind that have a frame in a span, by rank."""
    found: dict[int, list[Event]] = defaultdict(list)
    for rank, event in run.events_at(span.path, span.line, span.end_line):
        if event.kind == kind:
            found[rank].append(event)
    return found


def batches_of(events: Iterable[tuple[int, Event]]) -> dict[int, set[str]]:
    """The fingerprints of the batches that a loader gave or a forward took, by rank; ranks without one are left out."""
    found: dict[int, set[str]] = {}
    for rank, event in events:
        mark = event.detail.get("fingerprint" if event.kind == BATCH else "batch")
        if event.kind in (BATCH, FORWARD) and mark:
            found.setdefault(rank, set()).add(str(mark))
    return found


def any_equal(found: Mapping[int, set[str]]) -> bool:
    """Whether two ranks have one fingerprint in common."""
    return any(found[one] & found[other] for one, other in combinations(found, 2))


def by_trained_batches(finding: Finding, run: RecordedRun) -> str:
    """The verdict on batches at the loop and the forward that a finding names: confirmed where two ranks had an equal one."""
    places = [place for place in finding.related if place.role in ("loop", "forward")]
    found = batches_of(pair for place in places for pair in run.events_at(place.path, place.line))
    if len(found) < 2:
        return "not-covered"
    return "confirmed" if any_equal(found) else "not-observed"


def samples_alone(run: RecordedRun, finding: Finding) -> bool:
    """Whether samplers began at a finding or at a loop that it names, each of them for one rank alone."""
    places = [(finding.span.path, finding.span.line, finding.span.end_line)]
    places += [(place.path, place.line, place.line) for place in finding.related if place.role == "loop"]
    begun = [event for place in places for _, event in run.events_at(*place) if event.kind == SAMPLER]
    return bool(begun) and all(int(event.detail.get("replicas") or 0) == 1 for event in begun)


def totals(events: list[Event]) -> Iterator[tuple[float, Event]]:
    """By how much gradients exceed the mean over micro-batches and ranks, of the FACTOR events that tell it."""
    from ddp_audit.compare.factors import is_near

    for event in events:
        detail = event.detail
        chains = list(detail.get("factors") or ())
        passes, replicas = int(detail.get("passes") or 0), int(detail.get("replicas") or 0)
        if detail.get("hook") or not detail.get("mean") or len(chains) != 1 or passes < 1 or replicas < 2:
            continue
        ratio = float(detail.get("ratio") or 0)
        by_ranks = any(is_near(ratio, one) for one in (replicas, 1 / replicas))
        yield passes * prod(map(float, chains[0])) * (ratio if by_ranks else 1.0), event  # clipping scales as well
