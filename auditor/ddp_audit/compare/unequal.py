"""Two silent faults that need several looks at a run: one random stream on several ranks, and labels of unequal weight."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

from ddp_audit.compare.explain import capital, frames, rank_list
from ddp_audit.compare.faults import SEED_SHARED, TOKEN_WEIGHTS, SilentFault
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RankRun, RecordedRun, of_kinds
from ddp_audit.events import DRAWS, LABELS, SEED, Event

LEAST = 3  # looks that must show it
_SPREAD = 1.05  # the largest number of labels, or weight of one, over the smallest, up to which they count as equal


def same_stream(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """Ranks of one wrapper's group that drew the same numbers before most of the forwards that were looked at."""
    for by_rank in _by_model(run, DRAWS, groups):
        shared: Counter[int] = Counter()
        compared: Counter[int] = Counter()
        for at in _together(by_rank, "forward"):
            streams = Counter(event.detail.get("stream") for event in at.values())
            for rank, event in at.items():
                compared[rank] += 1
                shared[rank] += streams[event.detail.get("stream")] > 1
        guilty = [rank for rank in sorted(shared) if shared[rank] >= LEAST and 2 * shared[rank] > compared[rank]]
        if len(guilty) < 2:
            continue
        first = guilty[0]
        seeds = [_seed_before(run.ranks[rank], by_rank[rank][0]) for rank in guilty]
        seed = seeds[0]
        if seed is not None and all(other is not None and other.detail.get("seed") == seed.detail.get("seed") for other in seeds):
            place = next(iter(frames(seed)), None)
            why = f"All of them had the seed {seed.detail['seed']}{'' if place is None else f' from {place}'} and kept it. "
        else:
            place = next(iter(frames(by_rank[first][0])), None)
            why = "Their generators were in one state. "
        yield SilentFault(
            SEED_SHARED,
            tuple(guilty),
            place,
            f"{capital(rank_list(guilty))} drew the same random numbers for {shared[first]:,} of {compared[first]:,} training "
            f"forwards that were looked at. {why}Noise, time steps and masks of a step are the same on these ranks, so their mean "
            "rests on fewer draws than it seems to. After the wrap each rank needs a seed of its own, such as `seed + rank`.",
        )


def _seed_before(rank: RankRun, draw: Event) -> Event | None:
    """The last seed that a rank set before it drew."""
    last = None
    for event in of_kinds(rank.events, SEED, DRAWS):
        if event.kind == DRAWS and event.detail.get("forward") == draw.detail.get("forward"):
            break
        last = event if event.kind == SEED else last
    return last


def unequal_labels(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """Ranks of one wrapper's group whose losses are means over unequal numbers of labels, and are not scaled for it."""
    for by_rank in _by_model(run, LABELS, groups):
        looks = 0
        spreads: list[float] = []
        example: tuple[float, dict[int, Event]] = (0.0, {})
        for at in _together(by_rank, "backward"):
            looks += 1
            spread = _spread(at, "weight")
            if min(spread, _spread(at, "labels")) > _SPREAD:
                spreads.append(spread)
                example = max(example, (spread, at), key=lambda one: one[0])
        if len(spreads) < LEAST or 2 * len(spreads) <= looks:
            continue
        ranks = sorted(by_rank)
        spread, at = example
        least, most = (choose(at, key=lambda rank: at[rank].detail["labels"]) for choose in (min, max))
        yield SilentFault(
            TOKEN_WEIGHTS,
            tuple(ranks),
            next(iter(frames(by_rank[ranks[0]][0])), None),
            f"The losses of {rank_list(ranks)} are means over unequal numbers of labels in {len(spreads):,} of {looks:,} backward "
            f"passes that were looked at, and DDP takes the mean of these means: a label of the rank with the fewest weighs "
            f"{median(spreads):.2f} times as much as one of the rank with the most (middle value), and {spread:.2f} times at "
            f"most, with {at[least].detail['labels']:,} on rank {least} and {at[most].detail['labels']:,} on rank {most}. Sum the "
            "loss, and multiply it by the number of ranks over the number of labels of all ranks.",
        )


def _spread(at: Mapping[int, Event], key: str) -> float:
    values = [float(event.detail.get(key) or 0) for event in at.values()]
    return max(values) / min(values) if min(values) > 0 else 1.0


def _by_model(run: RecordedRun, kind: str, groups: Groups) -> Iterator[dict[int, list[Event]]]:
    """The events of a kind of each wrapper, by rank, for each group of its replicas."""
    found: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for rank, event in run.events_of(kind):
        found[str(event.detail.get("model", ""))][rank].append(event)
    return groups.split(found)


def _together(by_rank: Mapping[int, list[Event]], number: str) -> Iterator[dict[int, Event]]:
    """The events of at least two ranks that have the same number."""
    rows: dict[object, dict[int, Event]] = defaultdict(dict)
    for rank, events in sorted(by_rank.items()):
        for event in events:
            rows[event.detail.get(number)][rank] = event
    return (at for at in rows.values() if len(at) > 1)
