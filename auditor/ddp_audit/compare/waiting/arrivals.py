"""When each rank came to each collective, and when it could go on: once those had come that it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddp_audit.compare.waiting.timeline import AT_BACKWARD, MEETING, Key, Mark, waits_for
from ddp_audit.events import Site


class Meeting(NamedTuple):
    """One collective that all of its members were seen to come to. Times are those of the first rank's clock."""

    key: Key
    op: str
    root: int | None
    site: Site | None
    arrived: dict[int, float]

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.arrived, key=self.arrived.__getitem__)

    @property
    def late(self) -> float:
        """By how much it came after the one before it: what the others waited for this rank alone."""
        first, second = sorted(self.arrived.values())[-1:-3:-1]
        return first - second

    @property
    def is_backward(self) -> bool:
        """Whether this is the end of a backward pass."""
        return self.op == AT_BACKWARD

    def release(self, rank: int) -> float:
        """When a rank could go on. A root that sends does not wait for those that receive."""
        mine = self.arrived[rank]
        whom = waits_for(self.op)
        if whom == "all" or self.root is None or (whom == "to root" and rank == self.root):
            return max(self.arrived.values())
        return max(mine, self.arrived.get(self.root, mine)) if whom == "root" else mine


def meetings_of(
    marks: Mapping[int, Sequence[Mark]], groups: Mapping[str, Sequence[int]], offsets: Mapping[int, float]
) -> dict[Key, Meeting]:
    """The collectives that every member of their group came to, in order of the first rank's marks."""
    everyone = tuple(sorted(marks))
    arrived: dict[Key, dict[int, float]] = {}
    about: dict[Key, Mark] = {}
    for rank, own in marks.items():
        for mark in own:
            if mark.kind == MEETING and mark.key is not None:
                arrived.setdefault(mark.key, {})[rank] = mark.time - offsets.get(rank, 0.0)
                about.setdefault(mark.key, mark)
    found = {}
    for key, by_rank in arrived.items():
        members = groups.get(key[0]) or everyone
        if len(by_rank) == len(members) > 1:
            mark = about[key]
            found[key] = Meeting(key, mark.op, mark.root, mark.site, by_rank)
    return found
