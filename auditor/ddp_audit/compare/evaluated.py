"""Buffers that differ between replicas where it matters: what ranks evaluate with together, and what one rank saves for all.

Statistics of batch normalisation are read in every evaluation. Of other buffers (codebooks, ranges, memories) those count that an
evaluation was seen to read and that training had changed; a queue that only training reads may differ as it likes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from ddp_audit.compare.explain import capital, frames, rank_list
from ddp_audit.compare.faults import BUFFERS_DIFFER, SilentFault
from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RankRun, RecordedRun
from ddp_audit.events import BUFFERS, COLLECTIVE, FORWARD, OBJECT, SAVE, STATISTICS, STEP, USER, Event, Site

_COMBINING = frozenset(("all_reduce", "reduce", "all_gather", "gather", "reduce_scatter"))
_EVALUATION = "evaluation"
_LATER = ("save", "exit")  # moments at which buffers are looked at that were saved before
_SHOWN = 3  # names in a text

Key = tuple[int, int]  # joins that have ended, steps since


def statistics_apart(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """For each wrapper, the first evaluation with different statistics of batch normalisation whose results are put together."""
    for model, key, here, place in _apart(run, groups, STATISTICS):
        why = (
            "Each rank keeps the statistics of its own batches, and DDP replaces them by those of rank 0 only in a forward through "
            "the wrapper that follows one with gradients. Average or broadcast them before the evaluation, or train with "
            "SyncBatchNorm."
        )
        yield _evaluated(model, key, here, place, "running statistics of batch normalisation that differ", why)


def buffers_apart(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """For each wrapper, the first evaluation that reads different other buffers and whose results are put together."""
    for model, key, here, place in _apart(run, groups, BUFFERS):
        sent = any(event.detail.get("sent") for event in here.values())
        but = (
            "DDP replaces them by those of rank 0 only in a forward through the wrapper that follows one with gradients"
            if sent
            else "DDP is configured not to send them"
        )
        why = (
            f"Each rank changes them by its own batches, and {but}. Reduce over the ranks what they are made of, or broadcast them "
            "before the evaluation."
        )
        yield _evaluated(model, key, here, place, f"buffers that differ ({_listed(_differing(here.values()))})", why)


def saved_apart(run: RecordedRun, groups: Groups) -> Iterator[SilentFault]:
    """For each wrapper, the first file with one rank's buffers, where DDP sends none and evaluations read them."""
    read: dict[str, set[str]] = defaultdict(set)
    left: dict[str, dict[tuple[Key, object], dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for rank, event in run.events_of(BUFFERS):
        model = str(event.detail.get("model", ""))
        if event.detail.get("at") == _EVALUATION:
            read[model] |= set(_hashes(event))
        else:
            left[model][_key(event), event.detail.get("at")].setdefault(rank, event)
    saves: dict[str, dict[Key, dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for rank, event in run.events_of(SAVE):
        for model, joins, step in event.detail.get("buffers") or ():
            saves[str(model)][int(joins), int(step)].setdefault(rank, event)
    for model, by_key in sorted(saves.items()):
        savers = {rank for by_rank in by_key.values() for rank in by_rank}
        for ranks in groups.of(model, range(run.world_size)):
            mine = savers & set(ranks)
            if len(mine) != 1:
                continue  # nobody saves, or each rank its own
            for key, at in sorted((key, at) for key in by_key for at in _LATER):
                here = {rank: event for rank, event in left[model][key, at].items() if rank in ranks}
                names = _differing(here.values()) & read[model]
                if names and mine <= set(by_key[key]):
                    yield _saved(model, key, by_key[key][min(mine)], min(mine), tuple(here), names)
                    break


def _apart(run: RecordedRun, groups: Groups, kind: str) -> Iterator[tuple[str, Key, dict[int, Event], Site | None]]:
    """For each wrapper and group of replicas, the first evaluation in which they differ and put their results together, with the
    line where they do."""
    found: dict[str, dict[Key, dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for rank, event in run.events_of(kind):
        if kind == STATISTICS or event.detail.get("at") == _EVALUATION:
            found[str(event.detail.get("model", ""))][_key(event)].setdefault(rank, event)
    for model, by_key in sorted(found.items()):
        seen = sorted({rank for by_rank in by_key.values() for rank in by_rank})
        for ranks in groups.of(model, iter(seen)):
            for key, by_rank in sorted(by_key.items()):
                here = {rank: by_rank[rank] for rank in ranks if rank in by_rank}
                if not _differs(kind, here.values()):
                    continue
                combined = [_combined(run, run.ranks[rank], event, list(here)) for rank, event in here.items()]
                first = combined[0]
                if first is not None and None not in combined:
                    yield model, key, here, first.site
                    break


def _key(event: Event) -> Key:
    return int(event.detail.get("joins") or 0), int(event.detail.get("step") or 0)


def _differs(kind: str, looks: Collection[Event]) -> bool:
    if kind == STATISTICS:
        return len({event.detail.get("hash") for event in looks}) > 1
    return bool(_differing(looks))


def _hashes(event: Event) -> dict[str, str]:
    """The hash of each buffer, by name and shape: one that has grown to another shape on another rank is a cache."""
    pairs = (str(text).rpartition(" ") for text in event.detail.get("hashes") or ())
    return {name: value for name, _, value in pairs}


def _differing(looks: Collection[Event]) -> set[str]:
    """The buffers that all of some looks know, and that are not the same in them."""
    known = [_hashes(event) for event in looks]
    common = set.intersection(*map(set, known)) if len(known) > 1 else set()
    return {name for name in common if len({one[name] for one in known}) > 1}


def _listed(names: set[str]) -> str:
    shown = ", ".join(name.partition(" ")[0] for name in sorted(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _when(key: Key) -> str:
    joins, step = key
    return f"after optimizer step {step}{f' since the end of join {joins}' if joins else ''}"


def _evaluated(model: str, key: Key, here: Mapping[int, Event], place: Site | None, what: str, why: str) -> SilentFault:
    ranks = tuple(sorted(here))
    where = "" if place is None else f" at {place}"
    text = (
        f"{capital(rank_list(ranks))} evaluated {model or 'the model'} {_when(key)} with {what}, and put their results "
        f"together{where}: these are results of different models. {why}"
    )
    return SilentFault(BUFFERS_DIFFER, ranks, next(iter(frames(here[ranks[0]])), None), text)


def _saved(model: str, key: Key, save: Event, saver: int, ranks: tuple[int, ...], names: set[str]) -> SilentFault:
    ranks = tuple(sorted(ranks))
    text = (
        f"Rank {saver} saved {model or 'the model'} {_when(key)} with its own buffers ({_listed(names)}), which differ between "
        f"{rank_list(ranks)}: DDP is configured not to send them, so the other ranks have trained the parameters with others than "
        "those in the file, and evaluations read them. Reduce over the ranks what they are made of, or let DDP send them."
    )
    return SilentFault(BUFFERS_DIFFER, ranks, next(iter(frames(save)), None), text)


def _combined(run: RecordedRun, rank: RankRun, evaluation: Event, ranks: list[int]) -> Event | None:
    """The first collective of the user's that puts results of ranks together after an evaluation and before training goes on."""
    model = evaluation.detail.get("model")
    began = False
    for event in rank.events:
        if not began:
            began = event == evaluation
        elif (event.kind == FORWARD and event.detail.get("grad")) or (
            event.kind == STEP and model in (event.detail.get("models") or ())
        ):
            return None
        elif event.kind == COLLECTIVE and event.origin in (USER, OBJECT) and event.op in _COMBINING:
            members = run.groups.get(event.group)
            if members is None or set(ranks) <= set(members):
                return event
    return None
