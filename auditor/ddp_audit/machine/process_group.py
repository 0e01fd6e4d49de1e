"""Process groups: what the user's own calls send, and how groups get their names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, GROUP, OBJECT, USER, WAIT, Event
from ddp_audit.machine.matching import Meeting, Outcome, match, run_ranks

__all__ = ["ANY", "Groups", "Meeting", "Outcome", "ProcessGroup", "asynchronous", "match", "pickled_size", "run_ranks", "wait"]

ANY = -1  # the peer of a receive that takes a message of any rank


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

    def all_gather_single(self, numel: int | None = None, dtype: str | None = None) -> list[Event]:
        """`all_gather_single`, until torch 2.12 `all_gather_into_tensor`: an all-gather into one tensor."""
        return self.all_gather(numel, dtype)

    def reduce_scatter(self, numel: int | None = None, dtype: str | None = None, reduce_op: str | None = "sum") -> list[Event]:
        """`numel` counts what this rank brings, world size times what it gets."""
        return [self._event("reduce_scatter", numel, dtype, reduce_op=reduce_op)]

    def all_to_all(self, numel: int | None = None, dtype: str | None = None) -> list[Event]:
        return [self._event("all_to_all", numel, dtype)]

    def all_reduce_coalesced(
        self, numels: Sequence[int | None], dtype: str | None = None, reduce_op: str | None = "sum"
    ) -> list[Event]:
        """One all-reduce of all: of `all_reduce_coalesced`, and of the all-reduces inside a `_coalescing_manager`.

        The manager takes the reduce operation of the first and sends nothing without one.
        """
        if not numels:
            return []
        known = [n for n in numels if n is not None]
        return self.all_reduce(sum(known) if len(known) == len(numels) else None, dtype, reduce_op)

    # Objects travel as pickles: first their sizes, then their bytes. `sizes` are the bytes of the pickles (see `pickled_size`).

    def all_gather_object(self, sizes: Sequence[int | None] = ()) -> list[Event]:
        """Two all-gathers: the size of each rank's pickle, then the pickles padded to the longest. `sizes` has all ranks'."""
        return [
            self._event("all_gather", 1, "int64", origin=OBJECT),
            self._event("all_gather", _known(max, sizes), "uint8", origin=OBJECT),
        ]

    def gather_object(self, root: int | None = 0, sizes: Sequence[int | None] = ()) -> list[Event]:
        """An all-gather of sizes, then a gather of the padded pickles. `sizes` has all ranks'."""
        return [
            self._event("all_gather", 1, "int64", origin=OBJECT),
            self._event("gather", _known(max, sizes), "uint8", root=root, origin=OBJECT),
        ]

    def broadcast_object_list(
        self, length: int | None = None, *, root: int | None = 0, sizes: Sequence[int | None] = ()
    ) -> list[Event]:
        """Two broadcasts: the sizes of the list's pickles, then all of them in one. `sizes` are those of the root's list."""
        return [
            self._event("broadcast", length, "int64", root=root, origin=OBJECT),
            self._event("broadcast", _known(sum, sizes), "uint8", root=root, origin=OBJECT),
        ]

    def scatter_object_list(self, *, root: int | None = 0, sizes: Sequence[int | None] = ()) -> list[Event]:
        """A broadcast of the longest size, a scatter of the padded pickles, a scatter of their sizes."""
        return [
            self._event("broadcast", 1, "int64", root=root, origin=OBJECT),
            self._event("scatter", _known(max, sizes), "uint8", root=root, origin=OBJECT),
            self._event("scatter", 1, "int64", root=root, origin=OBJECT),
        ]

    # Point to point. `peer` is a global rank, or ANY; None where it is not known. A send returns once its receive is posted.

    def send(self, numel: int | None = None, dtype: str | None = None, *, peer: int | None, tag: int = 0) -> list[Event]:
        return [self._message("send", numel, dtype, peer, tag)]

    def recv(self, numel: int | None = None, dtype: str | None = None, *, peer: int | None, tag: int = 0) -> list[Event]:
        return [self._message("recv", numel, dtype, peer, tag)]

    def _message(self, op: str, numel: int | None, dtype: str | None, peer: int | None, tag: int) -> Event:
        """A message. As in a record, a receive from any rank has the peer None, and one that is not known has no peer."""
        detail: dict[str, Any] = {"tag": tag} if peer is None else {"peer": None if peer == ANY else peer, "tag": tag}
        return replace(self._event(op, numel, dtype), detail=MappingProxyType(detail))

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


def asynchronous(events: Sequence[Event], work: int) -> list[Event]:
    """A call with `async_op=True` (or isend, irecv), which returns at once; `work` numbers its handle on this rank."""
    return [replace(e, detail=MappingProxyType({**e.detail, "work": work})) for e in events]


def wait(work: int) -> list[Event]:
    """`handle.wait()`."""
    return [Event(WAIT, detail=MappingProxyType({"work": work}))]


def pickled_size(value: object) -> int:
    """Bytes that torch sends for an object."""
    import pickle

    return len(pickle.dumps(value))


def _known(combine: Callable[[list[int]], int], sizes: Sequence[int | None]) -> int | None:
    known = [n for n in sizes if n is not None]
    return combine(known) if known and len(known) == len(sizes) else None


class Groups:
    """The groups of one rank. Every process counts its own calls of `new_group` to name them (distributed_c10d.py).

    So ranks that do not make the same calls in the same order give one group different names, and wait for each other in vain.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.default = ProcessGroup()
        self.members: dict[str, tuple[int, ...]] = {DEFAULT_GROUP: tuple(range(world_size))}
        self.counted = 1  # groups that this process has named by its count, the default group included
        self.joined = 1  # groups that this rank is a member of

    def new_group(
        self, ranks: tuple[int, ...] | None = None, *, use_local_synchronization: bool = False
    ) -> tuple[list[Event], ProcessGroup | None]:
        """The creation of a group, and the group, None where this rank is not a member of it: collectives on it then do nothing.

        With `use_local_synchronization` members alone may call it, as its name is a hash of its ranks and of how many groups
        this rank is in: members that are in different numbers of groups wait for each other in vain. What torch gives a rank
        that is not a member is then Python's None, and `group=None` means the default group, which is what is returned here.
        """
        members = tuple(range(self.world_size)) if ranks is None else tuple(sorted(ranks))
        if use_local_synchronization:
            if self.rank not in members:
                return [], self.default
            name = "_".join(map(str, [*members, self.joined]))
            name = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
        else:
            name = str(self.counted)
            self.counted += 1
        self.members[name] = members
        self.joined += self.rank in members
        detail = MappingProxyType({"action": "new_group", "name": name, "ranks": members})
        event = Event(GROUP, op="new_group", group=name, detail=detail)
        return [event], ProcessGroup(name) if self.rank in members else None
