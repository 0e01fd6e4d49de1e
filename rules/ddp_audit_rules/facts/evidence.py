"""What a recorded run knows of silent faults, batches and samplers, as `verify` of the rules asks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import prod

from ddp_audit.compare.faults import SAME_DEVICE, SilentFault
from ddp_audit.compare.run import RecordedRun, same_file
from ddp_audit.events import BATCH, DEVICE, FORWARD, SAMPLER, START, Event
from ddp_audit.findings import Finding, Span
from ddp_audit_rules.facts.parted import replicas


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


def sequences_of(run: RecordedRun, pairs: Iterable[tuple[int, Event]], kind: str) -> dict[int, list[str]]:
    """The fingerprints of the batches that a loader gave (BATCH) or a training forward took (FORWARD), in order, by rank."""
    key = "fingerprint" if kind == BATCH else "batch"
    found: dict[int, list[str]] = {}
    for rank, event in pairs:
        if event.kind == kind and event.detail.get(key) and event.detail.get("grad", True):
            found.setdefault(rank, []).append(str(event.detail[key]))
    return found


def have_shared(run: RecordedRun, sequences: Mapping[int, list[str]]) -> bool | None:
    """Whether two replicas had the same batches one after the other; None where nothing could be compared.

    Ranks of one model-parallel group take the same batch by design, so only replicas are compared, batch by batch: a batch that
    comes again in another step or epoch, or as the padding of a sampler, is not sharing, nor is one that never changes.
    """
    seen = False
    for ranks in replicas(run):
        for one, other in combinations([rank for rank in ranks if rank in sequences], 2):
            pairs = list(zip(sequences[one], sequences[other], strict=False))
            equal = [a for a, b in pairs if a == b]
            if len(set(equal)) > 1 and 2 * len(equal) > len(pairs):
                return True
            seen = seen or len({batch for pair in pairs for batch in pair}) > 1
    return False if seen else None


def by_trained_batches(finding: Finding, run: RecordedRun) -> str:
    """The verdict on the batches at the loop and the forward that a finding names: confirmed where replicas had the same ones."""
    places = [place for place in finding.related if place.role in ("loop", "forward")]
    at = [pair for place in places for pair in run.events_at(place.path, place.line)]
    shared = [have_shared(run, sequences_of(run, at, kind)) for kind in (BATCH, FORWARD)]
    return "confirmed" if True in shared else "not-observed" if False in shared else "not-exercised"


def is_at(event: Event, span: Span) -> bool:
    """Whether an event has a frame in a span."""
    sites = (*event.stack, *((event.site,) if event.site is not None else ()))
    return any(span.line <= site.line <= span.end_line and same_file(site.path, span.path) for site in sites)


def seen_at(finding: Finding, run: RecordedRun) -> bool:
    """Whether some rank recorded something at a finding's place."""
    return bool(run.ranks_at(finding.span.path, finding.span.line, finding.span.end_line))


def by_devices(run: RecordedRun) -> str:
    """The verdict on ranks that may share a device: by the devices of their models, and by the indices that they chose."""
    if has_fault(run, SAME_DEVICE):
        return "confirmed"
    hosts = {rank: event.detail.get("host") for rank, event in run.events_of(START)}
    chosen: dict[int, object] = {}
    for rank, event in run.events_of(DEVICE):
        chosen.setdefault(rank, event.detail.get("index"))
    apart = len({(hosts.get(rank), index) for rank, index in chosen.items()}) == len(run.ranks) > 1
    return "not-observed" if apart and len(set(hosts.values())) < len(run.ranks) else "not-exercised"


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
