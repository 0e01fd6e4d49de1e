"""How the clocks of the ranks differ, from the collectives themselves.

Ranks of one host share a clock. Between hosts: a collective that keeps all of its members until the last has come ends on all of
them at about the same time, whichever was late. The median over many such ends is the difference of the clocks; a rank that is late
does not move it, and neither does a pause after the call. Exact ends are those of backward passes, whose return is recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from ddp_audit.compare.waiting.timeline import MEETING, Key, Mark

_LEAST = 3  # ends in common, below which nothing is known


def clock_offsets(marks: Mapping[int, Sequence[Mark]], hosts: Mapping[int, str]) -> dict[int, float] | None:
    """By rank what its clock shows more than that of the first rank; None where that cannot be known."""
    if len(set(hosts.values())) < 2:
        return dict.fromkeys(marks, 0.0)
    ends: dict[int, dict[Key, float]] = {
        rank: {mark.key: mark.ends for mark in own if mark.kind == MEETING and mark.key is not None and mark.ends is not None}
        for rank, own in marks.items()
    }
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank in marks:
        by_host[hosts.get(rank, "")].append(rank)
    first = next(iter(marks))
    found: dict[str, float] = {hosts.get(first, ""): 0.0}
    waiting = [host for host in by_host if host not in found]
    while waiting:  # hosts that have ends in common with one that is known
        for host in waiting:
            offset = _between(found, by_host, ends, host)
            if offset is not None:
                found[host] = offset
                waiting.remove(host)
                break
        else:
            return None
    return {rank: found[hosts.get(rank, "")] for rank in marks}


def _between(
    known: Mapping[str, float], by_host: Mapping[str, Sequence[int]], ends: Mapping[int, Mapping[Key, float]], host: str
) -> float | None:
    for other, offset in known.items():
        differences = [
            ends[mine][key] - ends[theirs][key]
            for mine, theirs in zip(by_host[host], by_host[other], strict=False)
            for key in ends[mine].keys() & ends[theirs].keys()
        ]
        if len(differences) >= _LEAST:
            return offset + median(differences)
    return None
