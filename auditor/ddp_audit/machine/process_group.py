"""Process groups: what the user's own collectives send, and how groups get their names."""

from __future__ import annotations

from types import MappingProxyType

from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, GROUP, OBJECT, USER, Event
from ddp_audit.machine.matching import Meeting, Outcome, match, run_ranks

__all__ = ["Groups", "Meeting", "Outcome", "ProcessGroup", "match", "run_ranks"]


class ProcessGroup:
    """Calls of `torch.distributed` on one group, as the events of one rank that is a member of it.

    `root`s are global ranks, as in torch. A size or dtype that is not known is None.
    """

    def __init__(self, name: str = DEFAULT_GROUP) -> None:
        self.name = name

    def all_reduce(self, numel: int | None = None, dtype: str | None = None, reduce_op: str | None = "sum") -> list[Event]:
        return [self._event("all_reduce", numel, dtype, reduce_op=reduce_op)]

    def broadcast(self, numel: int | None = None, dtype: str | None = None, *, root: int | None = 0) -> list[Event]:
        return [self._event("broadcast", numel, dtype, root=root)]

    def reduce(
        self, numel: int | None = None, dtype: str | None = None, *, root: int | None = 0, reduce_op: str | None = "sum"
    ) -> list[Event]:
        return [self._event("reduce", numel, dtype, root=root, reduce_op=reduce_op)]

    def all_gather(self, numel: int | None = None, dtype: str | None = None) -> list[Event]:
        return [self._event("all_gather", numel, dtype)]

    def gather(self, numel: int | None = None, dtype: str | None = None, *, root: int | None = 0) -> list[Event]:
        return [self._event("gather", numel, dtype, root=root)]

    def scatter(self, numel: int | None = None, dtype: str | None = None, *, root: int | None = 0) -> list[Event]:
        return [self._event("scatter", numel, dtype, root=root)]

    def barrier(self) -> list[Event]:
        return [self._event("barrier", None, None)]

    def all_gather_object(self) -> list[Event]:
        """Two all-gathers: the size of each rank's pickle, then the pickles padded to the longest."""
        return [self._event("all_gather", 1, "int64", origin=OBJECT), self._event("all_gather", None, "uint8", origin=OBJECT)]

    def gather_object(self, root: int | None = 0) -> list[Event]:
        """An all-gather of sizes, then a gather of the padded pickles."""
        return [
            self._event("all_gather", 1, "int64", origin=OBJECT),
            self._event("gather", None, "uint8", root=root, origin=OBJECT),
        ]

    def broadcast_object_list(self, length: int | None = None, *, root: int | None = 0) -> list[Event]:
        """Two broadcasts: the sizes of the list's pickles, then all of them in one."""
        return [
            self._event("broadcast", length, "int64", root=root, origin=OBJECT),
            self._event("broadcast", None, "uint8", root=root, origin=OBJECT),
        ]

    def _event(
        self,
        op: str,
        numel: int | None,
        dtype: str | None,
        *,
        root: int | None = None,
        reduce_op: str | None = None,
        origin: str = USER,
    ) -> Event:
        return Event(COLLECTIVE, op=op, group=self.name, origin=origin, numel=numel, dtype=dtype, root=root, reduce_op=reduce_op)


class Groups:
    """The groups of one rank. Every process counts its own calls of `new_group` to name them (distributed_c10d.py).

    So ranks that do not make the same calls in the same order give one group different names, and wait for each other in vain.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.default = ProcessGroup()
        self.members: dict[str, tuple[int, ...]] = {DEFAULT_GROUP: tuple(range(world_size))}

    def new_group(self, ranks: tuple[int, ...] | None = None) -> tuple[list[Event], ProcessGroup | None]:
        """The creation of a group, and the group, None where this rank is no member of it."""
        members = tuple(range(self.world_size)) if ranks is None else tuple(sorted(ranks))
        name = str(len(self.members))
        self.members[name] = members
        detail = MappingProxyType({"action": "new_group", "name": name, "ranks": members})
        event = Event(GROUP, op="new_group", group=name, detail=detail)
        return [event], ProcessGroup(name) if self.rank in members else None
