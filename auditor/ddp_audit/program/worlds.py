"""Jobs as one rank sees them: what a leaf of an expression stands for there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class World:
    """One rank's view of a job; the ranks of a node are consecutive.

    `atoms` gives values to what is unknown by itself, for a what-if: loop indices by their leaf name, options by
    `option_leaf`, other unknowns by their text.
    """

    rank: int
    world_size: int
    local_world_size: int
    atoms: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def leaf(self, name: str) -> Any:
        """The value that a leaf expression of that name stands for on this rank. Raises KeyError where it has none."""
        if name in self.atoms:
            return self.atoms[name]
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "local_rank": self.rank % self.local_world_size,
            "node_rank": self.rank // self.local_world_size,
            "local_world_size": self.local_world_size,
            "device_count": self.local_world_size,
            "nnodes": self.world_size // self.local_world_size,
        }[name]


@functools.cache
def worlds(world_size: int | None = None) -> tuple[World, ...]:
    """Every rank of the jobs that stand for all jobs: two ranks on one node, and two nodes of two; and one job of a given size."""
    jobs = [(2, 2), (4, 2)] if world_size is None else [(world_size, world_size)]
    if world_size is not None and world_size > 64:
        return tuple(World(r, world_size, world_size) for r in (0, 1, world_size // 2, world_size - 1))
    return tuple(World(rank, size, local) for size, local in jobs for rank in range(size))


def option_leaf(name: str) -> str:
    """The name under which the atoms of a world give an option another value than its default."""
    return f"option:{name}"
