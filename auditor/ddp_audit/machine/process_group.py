"""Process groups: what the user's own collectives send."""

from __future__ import annotations

from ddp_audit.events import COLLECTIVE, DEFAULT_GROUP, OBJECT, USER, Event


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
        return Event(
            COLLECTIVE, op=op, group=self.name, origin=origin, numel=numel, dtype=dtype, root=root, reduce_op=reduce_op
        )
