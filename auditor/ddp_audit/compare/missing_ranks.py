"""Ranks that are not there: collectives that some rank never enters, and ranks that wait for each other in different groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddp_audit.compare import explain
from ddp_audit.compare.group_names import group_text
from ddp_audit.compare.run import KILLED, WAITING, RankRun
from ddp_audit.compare.sequence import Divergence, Group, Key, events_of, forwards_of, minority
from ddp_audit.compare.termination import absent_for_cause, exited_in_order, failed_by_peer, has_ended
from ddp_audit.events import DDP_BUCKET, DDP_UNUSED_MAP, Event
from ddp_audit.graphs import shortest_cycle

Position = tuple[Key, int]  # a group and an index in it


def missing(
    groups: Mapping[Key, Group],
    runs: Mapping[int, RankRun],
    final: Iterable[int],
    *,
    stalled: bool,
    predicted: bool = False,
) -> Divergence | None:
    """The earliest collective that some ranks entered and a rank of `final` never will.

    `final` are the ranks that issue nothing more: those that have ended, or all of a stalled run. Only the earliest is
    returned, since a rank that is gone is missing in each of its groups.
    """
    final = set(final)
    found: list[tuple[Group, int, list[int]]] = []
    for group in groups.values():
        ranks = group.ranks() & set(runs)
        ends = {rank: group.ends.get(rank, group.start) for rank in ranks}
        for index in sorted({end for rank, end in ends.items() if rank in final}):
            holders = group.holders(index)
            if not holders or (group.mismatch is not None and group.mismatch <= index):
                break
            lacking = [rank for rank in sorted(ranks) if ends[rank] <= index and rank in final]
            absent = absent_for_cause(list(holders), lacking, runs, stalled)
            if absent:
                found.append((group, index, absent))
                break
    if not found:
        return None
    group, index, absent = found[0] if len(found) == 1 else min(found, key=lambda item: item[0].when(item[1]))
    return _missing(group, index, absent, runs, predicted)


def _missing(group: Group, index: int, absent: list[int], runs: Mapping[int, RankRun], predicted: bool) -> Divergence:
    holders = group.holders(index)
    forwards = forwards_of(holders.items())
    there: dict[int, Event] = {rank: entry.event for rank, entry in holders.items()}
    ranks = group.ranks() & set(runs)
    in_order = all(exited_in_order(runs[rank]) for rank in ranks)
    text = explain.extra(there, forwards, absent, predicted) if in_order else explain.missing(there, forwards, absent, runs)
    return Divergence(
        group.name,
        index,
        "extra" if in_order else "missing-rank",
        {rank: there.get(rank) for rank in sorted(ranks)},
        minority([list(there), absent], len(ranks)),
        text,
        forwards=forwards,
    )


def wait_cycle(
    groups: Mapping[Key, Group], last: Mapping[int, Position], runs: Mapping[int, RankRun], *, stalled: bool
) -> Divergence | None:
    """Ranks that wait for each other in collectives of different groups. `last`: the last collective of each rank."""
    blocked = {rank: last[rank] for rank, run in sorted(runs.items()) if rank in last and is_blocked(run, stalled)}
    if len({key for key, _ in blocked.values()}) < 2:
        return None
    alike: dict[object, int] = {}  # one rank of those that stand in one collective and are in the same groups
    members = {key: groups[key].ranks() for key in sorted({key for key, _ in blocked.values()})}
    for rank, position in blocked.items():
        belongs = tuple(groups[key].ends.get(rank, 0) if rank in ranks else -1 for key, ranks in members.items())
        alike.setdefault((position, belongs), rank)
    blocked = {rank: blocked[rank] for rank in sorted(alike.values())}
    waits: dict[int, list[int]] = {}
    for rank, (key, index) in blocked.items():
        group = groups[key]
        waits[rank] = [r for r in blocked if r != rank and r in group.ranks() and group.ends.get(r, 0) <= index]
    for start in waits:
        cycle = shortest_cycle(start, waits)
        if len({blocked[rank][0] for rank in cycle}) > 1:
            return _other_groups(groups, {rank: blocked[rank] for rank in sorted(cycle)})
    return None


def is_blocked(run: RankRun, stalled: bool) -> bool:
    """Whether a rank waits, or waited when it ended."""
    if run.state == WAITING or run.waiting is not None or failed_by_peer(run):
        return True
    return stalled and (run.state == KILLED or not has_ended(run))


def inversion(groups: Mapping[Key, Group]) -> Divergence | None:
    """The first place where two ranks use two groups in opposite order, for whole sequences of blocking collectives."""
    if len(groups) < 2:
        return None
    ranks = sorted({rank for group in groups.values() for rank in group.entries})
    for other in ranks[1:]:
        for a, b in zip(_blocking(groups, ranks[0], other), _blocking(groups, other, ranks[0]), strict=False):
            if a != b:
                return _other_groups(groups, {ranks[0]: a, other: b})
    return None


def _blocking(groups: Mapping[Key, Group], rank: int, other: int) -> list[Position]:
    """The blocking collectives of a rank that `other` has too, in the rank's order."""
    found = []
    for key, group in groups.items():
        theirs = group.entries.get(other, {})
        for index, entry in group.entries.get(rank, {}).items():
            if index in theirs and not _is_async(entry.event) and not _is_async(theirs[index].event):
                found.append((entry.ordinal, key, index))
    return [(key, index) for _, key, index in sorted(found)]


def _is_async(event: Event) -> bool:
    return event.origin in (DDP_BUCKET, DDP_UNUSED_MAP) or bool(event.detail.get("async"))


def _other_groups(groups: Mapping[Key, Group], at: Mapping[int, Position]) -> Divergence:
    entries = {rank: groups[key].entries[rank][index] for rank, (key, index) in at.items()}
    (name, _), index = at[min(at)]
    text = explain.other_groups(
        [(rank, entry.event, group_text(at[rank][0][0], groups[at[rank][0]].called)) for rank, entry in entries.items()]
    )
    return Divergence(name, index, "group", events_of(entries.items()), [], text, forwards=forwards_of(entries.items()))
