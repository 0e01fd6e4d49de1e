"""Whether the ranks of a recorded run part at some places: shared by the rules on collectives."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import EXITED, RecordedRun


def counts_at(run: RecordedRun, places: Iterable[tuple[str, int, int]], kinds: Iterable[str]) -> dict[int, int]:
    """Events of some kinds that each rank has at places (path, first line, last line)."""
    counts, wanted = dict.fromkeys(run.ranks, 0), set(kinds)
    for place in places:
        for rank, event in run.events_at(*place):
            counts[rank] = counts.get(rank, 0) + (event.kind in wanted)
    return counts


def parted(run: RecordedRun, counts: dict[int, int]) -> bool:
    """Whether counts differ by more than what a rank may be ahead of another in a run that was cut off.

    One more is a difference where the run ended in order, where a rank left while another waits, or where two wait at different
    places.
    """
    values = set(counts.values())
    if len(values) < 2:
        return False
    if run.complete or 0 in values or max(values) - min(values) > 1:
        return True
    waiting = [rank.waiting for rank in run.ranks.values() if rank.waiting is not None]
    left = any(rank.state == EXITED for rank in run.ranks.values())
    return bool(waiting) and (left or len({event.site for event in waiting}) > 1)
