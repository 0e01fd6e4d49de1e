"""Nodes of the process group: its life, collectives, messages between two ranks, and operations that are still running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddp_audit.program.nodes.base import CallNode, Node


class Init(CallNode):
    """`init_process_group`; args: backend, rank, world_size, device_id, timeout and the others."""

    kind: ClassVar[str] = "init"


class Destroy(Node):
    """`destroy_process_group`."""

    kind: ClassVar[str] = "destroy"


class NewGroup(CallNode):
    """`new_group` and its like; the target is the group, args: ranks, use_local_synchronization and the others."""

    kind: ClassVar[str] = "new-group"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Traffic(CallNode):
    """What all ranks of a group have to do together: a collective, or the constructor of a wrapper."""

    hidden: bool = False  # issued by a call whose name does not say it
    what: str = ""  # in words, where it is hidden
    if_sharded: bool = False  # one where parameters are sharded alone, which nothing but the job's configuration may say

    @property
    def called(self) -> str:
        """What it is called in reports: all_reduce, or DDP constructor; the word for its kind where a class has none of its own."""
        return self.kind


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Collective(Traffic):
    """A collective call; the target is the tensor, args: group, src or dst, op, async_op and the others."""

    kind: ClassVar[str] = "collective"
    op: str  # all_reduce, barrier, ..

    @property
    def called(self) -> str:
        """The operation."""
        return self.op


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class PointToPoint(CallNode):
    """send, recv, isend, irecv or batch_isend_irecv; args: tensor, dst or src, group, tag; or ops."""

    kind: ClassVar[str] = "point-to-point"
    op: str


class Wait(Node):
    """A wait for an asynchronous operation; the target is its handle, None where that is not known."""

    kind: ClassVar[str] = "wait"


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class EarlyUse(Node):
    """A buffer is touched while an operation on it may run; the target is the operation's handle."""

    kind: ClassVar[str] = "early-use"
    name: str  # of the buffer
    op: str  # of the operation
    write: bool  # whether the buffer is written, and not only read
    issued: int | None  # number of the node that issued it, None where that is not known
    sometimes: bool  # only some ways lead here without a wait
