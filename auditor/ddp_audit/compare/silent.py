"""Silent faults: what goes wrong on all ranks alike, so that their sequences agree and nothing fails.

Each is read from records of its own: optimizer steps, hashes of parameters, fingerprints of what went into a wrapper. The
detail of each kind of event is documented in `ddp_audit.trace.store`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, cast

from ddp_audit.compare.averaged import averaged_models
from ddp_audit.compare.evaluated import buffers_apart, saved_apart, statistics_apart
from ddp_audit.compare.explain import capital, frames, rank_list
from ddp_audit.compare.factors import wrong_factors
from ddp_audit.compare.faults import GRADIENTS_NOT_REDUCED, SAME_DEVICE, SAME_SAMPLES, SilentFault
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.replica_drift import drifts
from ddp_audit.compare.run import Looked, RecordedRun, tally
from ddp_audit.compare.sharing import generators_shared, samplers_differ, samples_shared, schedulers_apart
from ddp_audit.compare.termination import exited_in_order
from ddp_audit.compare.unequal import LEAST, same_stream, unequal_labels
from ddp_audit.events import FORWARD, ORDER, PLACE, SAMPLER, STEP, Event, Site

_MOST_SHARED = 0.5  # share of training forwards in which two ranks may have the same samples without a fault
_LONG_STREAK = 8  # and the number of forwards one after the other, after which it is not a chance either


def silent_faults(run: RecordedRun) -> list[SilentFault]:
    """The silent faults of a run, in the order of cause and consequence. A run of one rank has none."""
    if run.world_size < 2:
        return []
    steps = [event for one in run.ranks.values() for event, _ in tally(one.events, STEP) if event.detail.get("unreduced")]
    local = {str(model) for event in steps for model in event.detail.get("models") or ()}
    averaged = averaged_models(run, local)
    unreduced = list(_unreduced(run, averaged))
    groups = Groups(run)
    # Of what counts from the start of the run only some can be compared where the start was overwritten.
    is_whole = not any(one.lost for one in run.ranks.values())
    return [
        *_same_device(run),
        *unreduced,
        *drifts(run, groups, bool(unreduced), averaged),
        *statistics_apart(run, groups),
        *buffers_apart(run, groups),
        *saved_apart(run, groups),
        *wrong_factors(run, groups),
        *unequal_labels(run, groups),
        *same_stream(run, groups),
        *(_numbered(run, groups) if is_whole else _known_without_start(run, groups)),
        *_same_order(run),
        *_shuffled_alike(run),
    ]


def _numbered(run: RecordedRun, groups: Groups) -> list[SilentFault]:
    """Faults that show in what ranks did for the same time, counted from the start of the run."""
    samplers = list(samplers_differ(run, groups))
    return [
        *generators_shared(run, groups),
        *schedulers_apart(run),
        *samplers,
        *samples_shared(run, [fault.site for fault in samplers]),
        *_same_samples(run, groups),
    ]


def _known_without_start(run: RecordedRun, groups: Groups) -> list[SilentFault]:
    """Those of `_numbered` that show in the newest records too: schedulers carry their counts with them, and ranks that have ended
    in order have ended in the same iteration."""
    in_order = all(exited_in_order(one) for one in run.ranks.values())
    return [*schedulers_apart(run), *(samplers_differ(run, groups, from_end=True) if in_order else ())]


def _at(site: Site | None) -> str:
    return "" if site is None else f" at {site}"


def _same_device(run: RecordedRun) -> Iterator[SilentFault]:
    """Ranks whose parameters are on one device, by its UUID."""
    users: dict[str, dict[int, Event]] = defaultdict(dict)
    for rank, event in run.events_of(PLACE):
        for device in event.detail.get("devices") or ():
            users[str(device)].setdefault(rank, event)
    told: set[tuple[int, ...]] = set()
    for device, by_rank in users.items():
        ranks = tuple(sorted(by_rank))
        if len(ranks) > 1 and ranks not in told:
            told.add(ranks)
            site = next(iter(frames(by_rank[ranks[0]])), None)
            text = (
                f"{capital(rank_list(ranks))} have their parameters on one and the same device ({device}): they share its time and "
                "its memory, and others may stand idle. Each rank takes the device of its number on its host, such as "
                "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`. Where sharing is meant, nothing is wrong."
            )
            yield SilentFault(SAME_DEVICE, ranks, site, text)


def _unreduced(run: RecordedRun, averaged: Collection[str]) -> Iterator[SilentFault]:
    """Steps on gradients of single ranks, but for wrappers whose parameters are averaged afterwards."""
    local: dict[Site | None, Counter[int]] = {}  # steps on gradients that were not reduced, by line and rank
    every: dict[Site | None, Counter[int]] = defaultdict(Counter)
    for rank, rank_run in sorted(run.ranks.items()):
        for event, count in tally(rank_run.events, STEP):
            site = next(iter(frames(event)), None)
            every[site][rank] += count
            models = event.detail.get("models") or ()
            if event.detail.get("unreduced") is True and not (models and averaged and set(models) <= set(averaged)):
                local.setdefault(site, Counter())[rank] += count
    for site in every:
        if site not in local:
            continue
        most = max(local[site].values())
        total = max(every[site][rank] for rank in local[site])
        who = rank_list(local[site])
        yield SilentFault(
            GRADIENTS_NOT_REDUCED,
            tuple(sorted(local[site])),
            site,
            f"The optimizer step{_at(site)} used gradients that were never reduced over the ranks, in {most:,} of {total:,} "
            f"steps on {who}: no bucket all-reduce ran since they were accumulated. Each rank trains on its own gradients from "
            "there on, and the parameters drift apart.",
        )


def _same_samples(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """Ranks of one wrapper's group that got the same samples in most forwards with gradients, or in many in a row."""
    for by_rank in groups.split(_training(run)):
        shared: Counter[int] = Counter()
        compared: Counter[int] = Counter()
        distinct: dict[int, set[object]] = defaultdict(set)
        streak: Counter[int] = Counter()
        longest: Counter[int] = Counter()
        apart = 0  # forwards in which every rank had a batch of its own
        for row in zip_longest(*(found.batches for found in by_rank.values())):
            values = set(row)
            if len(values) == len(row) > 1 and None not in values and 0 not in values:
                apart += 1
                streak.clear()
                continue
            at: dict[object, list[int]] = defaultdict(list)
            for rank, batch in zip(by_rank, row, strict=True):
                if batch:
                    at[batch].append(rank)
            present = sum(len(ranks) for ranks in at.values())
            for fingerprint, ranks in at.items():
                for rank in ranks:
                    compared[rank] += present > 1
                    streak[rank] = streak[rank] + 1 if len(ranks) > 1 else 0
                    longest[rank] = max(longest[rank], streak[rank])
                    if len(ranks) > 1:
                        shared[rank] += 1
                        distinct[rank].add(fingerprint)
        for rank in shared:
            compared[rank] += apart
        # A batch that never changes (a dummy input, a run on one batch) says nothing about how samples are shared out.
        guilty = [
            rank
            for rank in sorted(shared)
            if len(distinct[rank]) > 1
            and shared[rank] >= LEAST
            and (shared[rank] > _MOST_SHARED * compared[rank] or longest[rank] >= _LONG_STREAK)
        ]
        if len(guilty) > 1:
            first = guilty[0]
            site = next(iter(frames(by_rank[first].first)), None)
            text = (
                f"{capital(rank_list(guilty))} got the same samples in {shared[first]:,} of {compared[first]:,} training "
                f"forwards: the ranks repeat each other's work, and the effective batch is that of fewer ranks. The loader "
                "needs a DistributedSampler, or each rank its own share or seed."
            )
            yield SilentFault(SAME_SAMPLES, tuple(guilty), site, text)


def _same_order(run: RecordedRun) -> Iterator[SilentFault]:
    """A shuffling DistributedSampler that gave the training forwards of two epochs the same samples in the same order."""
    found: dict[Site | None, list[int]] = defaultdict(list)
    times: dict[Site | None, int] = {}
    for rank, rank_run in sorted(run.ranks.items()):
        epochs: dict[tuple[Site | None, object], list[list[object]]] = defaultdict(list)
        for event, batches in _epochs(rank_run.events):
            if event.detail.get("shuffle") and int(event.detail.get("replicas") or 0) > 1:
                epochs[next(iter(frames(event)), None), event.detail.get("epoch")].append(batches)
        for (site, _), orders in epochs.items():
            whole = [order for order in orders if len(set(order)) > 1]
            repeats = sum(_is_prefix(order, whole[0]) for order in whole[1:])
            if repeats and rank not in found[site]:
                found[site].append(rank)
                times[site] = max(times.get(site, 0), repeats + 1)
    for site, ranks in found.items():
        if ranks:
            text = (
                f"{times[site]} epochs{_at(site)} gave {rank_list(ranks)} the same samples in the same order: "
                "DistributedSampler shuffles by its epoch, and set_epoch was not called with a new one between them."
            )
            yield SilentFault(SAME_SAMPLES, tuple(ranks), site, text)


def _shuffled_alike(run: RecordedRun) -> Iterator[SilentFault]:
    """Loaders that shuffle, and gave most epochs of training the order of one of them."""
    found: dict[Site | None, dict[int, tuple[int, int]]] = defaultdict(dict)
    by_place: dict[tuple[Site | None, int], list[object]] = defaultdict(list)
    for rank, event in run.events_of(ORDER):
        by_place[next(iter(frames(event)), None), rank].append((event.detail.get("batches"), event.detail.get("order")))
    for (site, rank), orders in by_place.items():
        times = Counter(orders).most_common(1)[0][1]
        if times > 1 and 2 * times > len(orders):
            found[site][rank] = (times, len(orders))
    for site, by_rank in found.items():
        times, epochs = next(iter(by_rank.values()))
        text = (
            f"{times} of {epochs} epochs{_at(site)} gave {rank_list(by_rank)} the same samples in the same order: the loader "
            "shuffles from a random state that was the same again, as after a seed that is set in every epoch."
        )
        yield SilentFault(SAME_SAMPLES, tuple(by_rank), site, text)


def _is_prefix(order: list[object], of: list[object]) -> bool:
    """Whether an epoch, perhaps cut short by the end of the run, repeats another from its start."""
    length = min(len(order), len(of))
    return order[:length] == of[:length]


class Forwards(NamedTuple):
    """The forwards with gradients of one wrapper on one rank: the first, and each one's batch (None where unknown)."""

    first: Event
    batches: Sequence[object]


def _training(run: RecordedRun) -> Mapping[str, Mapping[int, Forwards]]:
    """The forwards with gradients of each wrapper, by rank."""
    found: dict[str, dict[int, Forwards]] = defaultdict(dict)
    for rank, rank_run in sorted(run.ranks.items()):
        for model, forwards in _trained(rank_run.events).items():
            found[model][rank] = forwards
    return found


def _trained(events: Sequence[Event]) -> Mapping[str, Forwards]:
    if hasattr(events, "trained"):  # a trace that is read in bulk
        return {model: Forwards(*found) for model, found in cast("Looked", events).trained().items()}
    found: dict[str, tuple[Event, list[object]]] = {}
    for event in events:
        if event.kind == FORWARD and event.detail.get("grad"):
            found.setdefault(str(event.detail.get("model", "")), (event, []))[1].append(event.detail.get("batch"))
    return {model: Forwards(*forwards) for model, forwards in found.items()}


def _epochs(events: Sequence[Event]) -> Iterable[tuple[Event, list[object]]]:
    """Each iteration of a sampler with the known batches of the forwards with gradients after it."""
    if hasattr(events, "epochs"):
        return cast("Looked", events).epochs()
    found: list[tuple[Event, list[object]]] = []
    for event in events:
        if event.kind == SAMPLER and event.detail.get("action") == "iter":
            found.append((event, []))
        elif event.kind == FORWARD and found and event.detail.get("grad") and event.detail.get("batch"):
            found[-1][1].append(event.detail["batch"])
    return found
