"""`join`: what the ranks of one block do, of which each knows only its own part.

Inside `with ddp.join():` a forward first says that its rank is alive; a rank that has reached the end of the block answers the
traffic of the others' forwards and backward passes with shadows, until all have (torch/distributed/algorithms/join.py, and
`_DDPJoinHook` of torch/nn/parallel/distributed.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddp_audit.events import ASYNC, DDP_BUFFERS, DDP_JOIN, Event
from ddp_audit.machine import errors
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.gradient import NOBODY, Presence

if TYPE_CHECKING:
    from ddp_audit.machine.ddp import Ddp


@dataclass(frozen=True, slots=True)
class JoinBlock:
    """One block: for every rank its forwards in it, in order, each as whether it will be synchronized.

    A forward is taken to be followed by its backward pass. The options are those of `join`.
    """

    forwards: Mapping[int, Sequence[bool]]
    divide_by_initial_world_size: bool = True
    throw_on_early_termination: bool = False

    @property
    def length(self) -> int:
        """Forwards of the ranks that have the most."""
        return max(len(own) for own in self.forwards.values())

    def absent(self, iteration: int) -> frozenset[int]:
        """The ranks whose inputs have run out by this iteration, which counts from 0."""
        return frozenset(rank for rank, own in self.forwards.items() if len(own) <= iteration)

    def presence(self, iteration: int) -> Presence:
        """Who takes part in this iteration's reduction, and what it divides by."""
        absent = self.absent(iteration)
        return Presence(absent, len(self.forwards) - len(absent), not self.divide_by_initial_world_size)

    def leader(self, iteration: int) -> int:
        """The rank whose buffers count: the highest that is alive, and not rank 0."""
        return max(set(self.forwards) - self.absent(iteration))

    def synchronizes(self, iteration: int) -> bool:
        """Whether some rank that is alive says that this iteration's backward will be reduced."""
        return any(own[iteration] for own in self.forwards.values() if len(own) > iteration)


@dataclass(slots=True)
class JoinState:
    """Where one rank stands: its forwards since the block began, and whether the block is over on all ranks.

    Forwards after the block keep the traffic of `join`, as torch never takes its configuration back; all ranks count again.
    """

    block: JoinBlock
    rank: int
    iteration: int = 0
    over: bool = False

    @property
    def presence(self) -> Presence:
        """Who takes part in the reduction of the forward that comes."""
        return (
            Presence(NOBODY, len(self.block.forwards), self.divides_by_alive) if self.over else self.block.presence(self.iteration)
        )

    @property
    def divides_by_alive(self) -> bool:
        return not self.block.divide_by_initial_world_size

    @property
    def leader(self) -> int:
        """The rank whose buffers count in the forward that comes."""
        return max(set(self.block.forwards) - self.presence.absent)

    @property
    def shadows(self) -> range:
        """The iterations that this rank answers once its own are done."""
        return range(len(self.block.forwards[self.rank]), self.block.length)


def announce(ddp: Ddp, join: JoinState) -> list[Event]:
    """What a forward sends first under `join`. Raises MachineError where a rank is out of inputs and all shall stop."""
    alive = replace(ddp.event("all_reduce", DDP_JOIN, 1, "float32", "sum"), detail=ASYNC)
    if not join.block.throw_on_early_termination:
        return [alive]
    check = ddp.event("all_reduce", DDP_JOIN, 1, "float32", "sum")
    if join.presence.absent:
        raise MachineError(errors.DETECTED_EXHAUSTED, [alive, check])
    return [alive, check]


def leave(ddp: Ddp, join: JoinState) -> list[Event]:
    """What the end of a block sends on a rank. Raises MachineError where it is out of inputs and all shall stop."""
    block = join.block
    events: list[Event] = []
    for iteration in join.shadows:
        events.append(ddp.event("all_reduce", DDP_JOIN, 1, "float32", "sum"))
        if block.throw_on_early_termination:
            events.append(ddp.event("all_reduce", DDP_JOIN, 1, "float32", "sum"))
            raise MachineError(f"Rank {join.rank} {errors.EXHAUSTED}", events)
        _shadow(ddp, block, iteration, events)
    events.append(ddp.event("all_reduce", DDP_JOIN, 1, "float32", "sum"))
    events.append(ddp.event("all_reduce", DDP_JOIN, 1, "int64", "max"))
    last = block.leader(block.length - 1) if block.length else max(block.forwards)
    events.extend(replace(e, root=last) for e in ddp.broadcasts(ddp.states, DDP_JOIN))
    join.over = True
    return events


def _shadow(ddp: Ddp, block: JoinBlock, iteration: int, events: list[Event]) -> None:
    """The traffic of one iteration of the others, with zeros for gradients."""
    reducer = ddp.reducer
    start = len(events)
    ddp.run(reducer.rebuild_buckets, events)
    events[start:] = [replace(e, origin=DDP_JOIN) for e in events[start:]]
    if ddp.will_broadcast_buffers:
        events.append(ddp.event("all_reduce", DDP_JOIN, 1, "int64", "max"))
        events.extend(replace(e, root=block.leader(iteration)) for e in ddp.broadcasts(ddp.buffers, DDP_BUFFERS))
    events.append(ddp.event("all_reduce", DDP_JOIN, 1, "float32", "sum"))
    ddp.require_forward_param_sync = block.synchronizes(iteration)
    if not ddp.require_forward_param_sync:
        return
    start = len(events)
    ddp.run(reducer.shadow_reduction, events)
    events[start:] = [replace(e, origin=DDP_JOIN) for e in events[start:]]
