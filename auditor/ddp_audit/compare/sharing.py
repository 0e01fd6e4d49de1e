"""How ranks share out what they train on, and their course: samplers that differ, samples on two ranks, schedulers, generators."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from ddp_audit.compare.explain import capital, frames, rank_list
from ddp_audit.compare.faults import GENERATOR_SHARED, SAMPLER_DIFFERS, SAMPLES_SHARED, SCHEDULER_STEPS, SilentFault
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RankRun, RecordedRun, of_kinds
from ddp_audit.events import FORWARD, RESTORED, SAMPLER, SAMPLES, SCHEDULER, SEED, Event, Site

_LEAST_SHARED = 4  # samples on two ranks
_LEAST_PART = 0.02  # of the samples of a rank
_PER_OWN = 8  # times the samples that a rank itself got twice: a data set with duplicates says nothing
_LEAST_STEPS = 8  # of an optimizer, before its scheduler is compared with it
_TIMES = 1.5  # steps of a scheduler for one of its optimizer


def samplers_differ(run: RecordedRun, groups: Groups, *, from_end: bool = False) -> Iterator[SilentFault]:
    """DistributedSamplers that shuffle with another seed or epoch on some rank in the same iteration. `from_end`: these are counted
    from the last one, since the first ones are not known."""
    found: dict[tuple[Site | None, int], dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for rank, event in run.events_of(SAMPLER):
        detail = event.detail
        if detail.get("action") == "iter" and detail.get("shuffle") and int(detail.get("replicas") or 0) > 1:
            found[next(iter(frames(event)), None), int(detail["replicas"])][rank].append(event)
    for (site, _), every in found.items():
        for ranks in groups.replicas(sorted(every)):
            newest = min(len(every[rank]) for rank in ranks) if from_end else 0
            by_rank = {rank: every[rank][-newest:] for rank in ranks}
            # Ranks that iterate it another number of times are not in the same iteration.
            parted = _parted(by_rank) if len({len(events) for events in by_rank.values()}) == 1 else None
            if parted is not None:
                number, name, values = parted
                which = f"iteration {newest - number + 1} from the end" if from_end else f"iteration {number}"
                text = (
                    f"In {which}{_at(site)} the DistributedSampler has {name} {_each(values)}. It shuffles all samples "
                    "by its seed and epoch and takes every n-th: with another order on each rank some samples are trained on "
                    f"twice in an epoch, and others never. Give all ranks the same {name}."
                )
                yield SilentFault(SAMPLER_DIFFERS, tuple(ranks), site, text)


def _parted(by_rank: Mapping[int, list[Event]]) -> tuple[int, str, dict[int, object]] | None:
    """The first iteration, from 1, in which the samplers differ, in what, and what each has."""
    for number, row in enumerate(zip(*by_rank.values(), strict=True), 1):
        for name in ("seed", "epoch"):
            values: dict[int, object] = {rank: event.detail.get(name) for rank, event in zip(by_rank, row, strict=True)}
            if None not in values.values() and len(set(values.values())) > 1:
                return number, name, values
    return None


def _each(values: Mapping[int, object]) -> str:
    ranks: dict[object, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        ranks[value].append(rank)
    parts = [f"{value} on {rank_list(some)}" for value, some in list(ranks.items())[:4]]
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _at(site: Site | None) -> str:
    return "" if site is None else f" at {site}"


def samples_shared(run: RecordedRun, explained: Collection[Site | None] = ()) -> Iterator[SilentFault]:
    """Samples that two ranks got in one epoch of a DistributedSampler, which gives each index to one rank.

    `explained`: lines whose samplers differ.
    """
    found: dict[tuple[Site | None, int], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    shares: dict[int, int] = {}  # by rank the share that its sampler gives it: ranks of one share have the same samples
    for rank, event in run.events_of(SAMPLES):
        key = (next(iter(frames(event)), None), int(event.detail.get("epoch") or 0))
        found[key][rank] += str(event.detail.get("samples") or "").split()
        shares[rank] = int(event.detail.get("share") or 0)
    done: set[Site | None] = set(explained)
    for (site, epoch), by_rank in sorted(found.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        by_share = {shares[rank]: samples for rank, samples in by_rank.items()}
        holders: dict[str, set[int]] = defaultdict(set)
        for share, samples in by_share.items():
            for sample in samples:
                holders[sample].add(share)
        shared = [held for held in holders.values() if len(held) > 1]
        least = min(len(samples) for samples in by_share.values())
        twice = sum(len(samples) - len(set(samples)) for samples in by_share.values())
        # A sampler without drop_last gives up to one sample for each rank twice, so that all get equally many. And where a data set
        # has duplicates, they are on one rank as well, in proportion to the pairs of ranks.
        others = len(by_share) - 1
        if site in done or len(shared) - others < max(_LEAST_SHARED, _LEAST_PART * least, _PER_OWN * twice * others):
            continue
        done.add(site)
        held = {share for shares_of_one in shared for share in shares_of_one}
        guilty = sorted(rank for rank in by_rank if shares[rank] in held)
        text = (
            f"{capital(rank_list(guilty))} share {len(shared):,} of {len(holders):,} samples in epoch {epoch + 1}{_at(site)}: the "
            "DistributedSampler gives each index to one rank, so an index is another sample on each rank. The data set is in "
            "another order there, as after a shuffle without a common seed or from a listing that is not sorted."
        )
        yield SilentFault(SAMPLES_SHARED, tuple(guilty), site, text)


def schedulers_apart(run: RecordedRun) -> Iterator[SilentFault]:
    """Schedulers that step more often than their optimizers, or on some ranks another number of times."""
    last: dict[Site | None, dict[int, Event]] = defaultdict(dict)
    for rank, event in run.events_of(SCHEDULER):
        if not event.detail.get("library"):
            last[next(iter(frames(event)), None)][rank] = event
    for site, by_rank in last.items():
        known = {rank: (int(e.detail["steps"]), int(e.detail.get("optimizer_steps") or 0)) for rank, e in by_rank.items()}
        event = next(iter(by_rank.values()))
        what = f"The {event.detail.get('scheduler') or 'scheduler'}{_at(site)}"
        optimizer = event.detail.get("optimizer") or "optimizer"
        if len({steps for _, steps in known.values()}) == 1 and len({count for count, _ in known.values()}) > 1 and run.complete:
            each = _each({rank: f"{count:,} times" for rank, (count, _) in known.items()})
            text = (
                f"{what} stepped {each}, and the {optimizer} equally often on all of them: the ranks train with different learning "
                "rates from there on."
            )
            yield SilentFault(SCHEDULER_STEPS, tuple(sorted(known)), site, text)
            continue
        fast = {rank: one for rank, one in known.items() if one[1] >= _LEAST_STEPS and one[0] >= _TIMES * one[1]}
        if fast:
            count, steps = next(iter(fast.values()))
            text = (
                f"{what} stepped {count:,} times for {steps:,} steps of its {optimizer} on {rank_list(fast)}: its schedule runs "
                f"{count / steps:.2g} times as fast as the training. Step it where the optimizer steps, or count its length "
                "in calls of `step()`."
            )
            yield SilentFault(SCHEDULER_STEPS, tuple(sorted(fast)), site, text)


def generators_shared(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """A generator state that is restored on several ranks, whose generators were in different states before.

    It is not a fault where each of them goes back to a state that it was in itself, as after some draws of its own with another
    seed, or is seeded before its next forward.
    """
    found: dict[tuple[Site | None, int], dict[int, Event]] = defaultdict(dict)
    times: Counter[tuple[Site | None, int]] = Counter()
    for rank, event in run.events_of(RESTORED):
        site = next(iter(frames(event)), None)
        found[site, times[site, rank]][rank] = event
        times[site, rank] += 1
    done: set[Site | None] = set()
    for (site, _), by_rank in found.items():
        for ranks in groups.replicas(sorted(by_rank)):
            states: dict[object, list[int]] = defaultdict(list)
            for rank in ranks:
                states[by_rank[rank].detail.get("state")].append(rank)
            for same in states.values():
                if site in done or len(same) < 2 or len({by_rank[rank].detail.get("before") for rank in same}) < 2:
                    continue
                if all(by_rank[rank].detail.get("own") for rank in same):
                    continue
                same = [rank for rank in same if not _is_seeded_after(run.ranks[rank], by_rank[rank])]
                if len(same) < 2:
                    continue
                done.add(site)
                text = (
                    f"{capital(rank_list(same))} restore one and the same state of torch's generator{_at(site)}, and were in "
                    "different ones before: from there on they draw the same numbers, for dropout and augmentation too. Save the "
                    "state of each rank and restore each rank's own, or seed by rank again after the restore."
                )
                yield SilentFault(GENERATOR_SHARED, tuple(same), site, text)


def _is_seeded_after(rank: RankRun, restored: Event) -> bool:
    """Whether the generator gets a seed before the first forward after a state was restored."""
    is_past = False
    for event in of_kinds(rank.events, RESTORED, SEED, FORWARD):
        if is_past:
            return event.kind == SEED
        is_past = event == restored
    return False
