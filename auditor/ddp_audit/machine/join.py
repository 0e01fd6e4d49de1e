"""`join`: what the ranks of one block do, of which each knows only its own part.

Inside `with ddp.join():` a forward first says that its rank is alive; a rank that has reached the end of the block answers the
traffic of the others' forwards and backward passes with shadows, until all have (torch/distributed/algorithms/join.py, and
`_DDPJoinHook` of torch/nn/parallel/distributed.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddp_audit.machine.gradient import NOBODY, Presence


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
