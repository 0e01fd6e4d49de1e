"""Whether the ranks of a recorded run part at some places: shared by the rules on collectives.

Compared are ranks that have to do the same there: the members of a collective's group, the replicas of a wrapper for forwards,
backward passes and steps. A rank that did less is evidence only where nothing else explains it: it left in order, or it stands
elsewhere for good. One that failed, or that a launcher or a user ended, had no time to do as much as the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import EXITED, RAISED, RankRun, RecordedRun, last_of, same_file
from ddp_audit.compare.termination import exited_in_order, failed_by_itself, failed_by_peer, was_stopped
from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, EXCEPTION, POINT_TO_POINT, WRAP, Event

if TYPE_CHECKING:
    from ddp_audit.compare.sequence import Divergence

Places = Iterable[tuple[str, int, int]]


def at_places(run: RecordedRun, places: Places) -> Iterator[tuple[int, Event]]:
    """The events at places (path, first line, last line), with their ranks."""
    return (pair for place in places for pair in run.events_at(*place))


def counts_at(run: RecordedRun, places: Places, kinds: Collection[str]) -> list[dict[int, int]]:
    """How many events of some kinds each rank has at places: a mapping for each set of ranks that have to have equally many."""
    collectives: dict[str, Counter[int]] = defaultdict(Counter)
    others: Counter[int] = Counter()
    for rank, event in at_places(run, places):
        if event.kind == COLLECTIVE:
            if COLLECTIVE in kinds and event.op not in POINT_TO_POINT:
                collectives[event.group][rank] += 1
        elif event.kind in kinds:
            others[rank] += 1
    found = [{rank: counts[rank] for rank in members(run, group)} for group, counts in collectives.items()]
    if others:
        found += [{rank: others[rank] for rank in ranks} for ranks in replicas(run)]
    return [counts for counts in found if len(counts) > 1 and any(counts.values())]


def members(run: RecordedRun, group: str) -> list[int]:
    """The ranks of a group; those that were seen in it where the run does not say."""
    if run.groups.get(group):
        return sorted(set(run.groups[group]) & set(run.ranks))
    if group == DEFAULT_GROUP:
        return sorted(run.ranks)
    return sorted({rank for rank, event in run.events_of(COLLECTIVE) if event.group == group})


def replicas(run: RecordedRun) -> list[list[int]]:
    """The sets of ranks that wrapped one model with one group; all ranks where the run knows of no wrapper."""
    groups = Groups(run)
    models = {str(event.detail.get("model", "")) for _, event in run.events_of(WRAP)} or {""}
    return [list(ranks) for ranks in {tuple(ranks) for model in models for ranks in groups.of(model, sorted(run.ranks))}]


def parted(run: RecordedRun, counts: Sequence[Mapping[int, int]], places: Places = ()) -> bool:
    """Whether some rank did less at places than the others, for a reason that lies in what the ranks were meant to do.

    Arms of a condition may issue one and the same collective from two lines: where the ranks' sequences agree to their end,
    nothing parted.
    """
    spans = list(places)
    for by_rank in counts:
        most = max(by_rank.values())
        if any(count < most and _is_short(run, rank, most - count, spans) for rank, count in by_rank.items()):
            return has_diverged(run)
    return any(len(set(by_rank.values())) > 1 for by_rank in counts) and _part_at(run, spans)


def _part_at(run: RecordedRun, places: Places) -> bool:
    """Whether the ranks diverge in one collective that some of them issue at these places and others elsewhere.

    That is evidence however the ranks ended: gloo aborts a rank that receives more than it has room for.
    """
    spans = list(places)
    for one in _divergences(run):
        there = {any(_is_at(event, place) for place in spans) for event in one.ranks.values() if event is not None}
        if len(there) > 1 and not one.is_notice:
            return True
    return False


def lacks_partner(run: RecordedRun, places: Places) -> bool:
    """Whether a message of these places has no other end, or stands in a circle of messages: evidence however its rank ended.

    gloo raises in the call once the partner's process has ended.
    """
    spans = list(places)
    for one in _divergences(run):
        ends = [event for event in one.ranks.values() if event is not None]
        if one.message is None or one.is_notice or (len(ends) == len(one.ranks) and one.kind != "order"):
            continue
        if any(event.op in POINT_TO_POINT and _is_at(event, place) for event in ends for place in spans):
            return True
    return False


def has_diverged(run: RecordedRun) -> bool:
    """Whether the comparison of the ranks finds a divergence, or ranks that met in swapped order or from an evaluation.

    That they met from different places alone is none: arms of a condition may both issue it. Without collectives there is nothing
    to compare, and the answer is true.
    """
    if next(run.events_of(COLLECTIVE), None) is None:
        return True
    from ddp_audit.compare.explain import CROSSED_OTHER  # which an audit does not need

    return any(not (one.is_notice and CROSSED_OTHER in one.explanation) for one in _divergences(run))


def _divergences(run: RecordedRun) -> list[Divergence]:
    from ddp_audit.compare.verdict import compare_run  # which an audit does not need

    return compare_run(run, stalled=stalled(run)).divergences


def _is_short(run: RecordedRun, rank: int, by: int, places: Places) -> bool:
    one = run.ranks[rank]
    if exited_in_order(one):
        return True
    if failed_of_its_own(one) or (was_stopped(one) and not stalled(run)):
        return False
    if by > 1:
        return True
    # One less is where a rank stands that is a moment behind, unless it waits elsewhere.
    waits = one.waiting
    return waits is not None and not any(_is_at(waits, place) for place in places) and stalled(run)


def _is_at(event: Event, place: tuple[str, int, int]) -> bool:
    path, first, last = place
    return any(first <= s.line <= last and same_file(s.path, path) for s in (*event.stack, *filter(None, (event.site,))))


def failed_of_its_own(one: RankRun) -> bool:
    """Whether a rank ended by an error that came of no collective: an exception of a line that issues none, or a signal."""
    if not failed_by_itself(one) or one.waiting is not None:
        return False
    if one.state == EXITED:
        return True
    raised = last_of(one.events, EXCEPTION) if one.state == RAISED else None
    if raised is None:
        return one.state == RAISED or last_of(one.events, COLLECTIVE) is None
    last = last_of(one.events, COLLECTIVE)
    at = next(iter(raised.stack), raised.site)
    return last is None or at is None or at not in (last.site, *last.stack)


def stalled(run: RecordedRun) -> bool:
    """Whether ranks waited for good: the launcher ended them for it, two stand at different places, one gave up, or one has left
    in order while another waits."""
    waiting = [one.waiting for one in run.ranks.values() if one.waiting is not None]
    if run.meta.get("killed") or any(failed_by_peer(one) for one in run.ranks.values()):
        return not any(failed_of_its_own(one) for one in run.ranks.values())
    left = any(exited_in_order(one) for one in run.ranks.values())
    return bool(waiting) and (left or len({event.site for event in waiting}) > 1)
