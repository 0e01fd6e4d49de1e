"""Random numbers: the seeds of a stream, whether all ranks draw the same, and whether a value was drawn or made of new numbers."""

from __future__ import annotations

from ddp_audit.program.meaning import is_kind
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Seed
from ddp_audit.program.values import CLOCK, MISSING, RANDOM, RANK, Expr, Unknown, Value, World, evaluate

_UNEQUAL = frozenset({RANK, RANDOM, CLOCK})


def one_stream(program: Program, library: str, before: int | None = None) -> bool:
    """Whether all ranks draw the same numbers from a library (torch, numpy, random), as far as its seeds say.

    It is seeded with values that are equal on all ranks; with `before` the last seed before that node counts alone.
    """
    seeds = [n for n in seeds_of(program, library) if before is None or n.number < before]
    if before is not None:
        seeds = seeds[-1:]
    return bool(seeds) and not any(seed.seed.taint & _UNEQUAL or seed.rank_guards for seed in seeds)


def seeds_of(program: Program, *streams: str) -> list[Seed]:
    """The seeds that start one of some streams: torch (the default generator on the CPU), cuda, numpy, random."""
    return [node for node in program.of(Seed) if not node.streams.isdisjoint(streams)]


def seed_of_all(seed: Seed) -> object:
    """The number that a seed is on all ranks; MISSING where it is not known, or another one on another rank."""
    values = [evaluate(seed.seed, World(rank, 2, 2)) for rank in (0, 1)]
    return values[0] if MISSING not in values and values[0] == values[1] else MISSING


def made_by_chance(value: Value) -> bool:
    """Whether a condition asks a number that torch draws in it."""
    if isinstance(value, Expr):
        return any(made_by_chance(arg) for arg in value.args)
    return is_kind(value, "draws-in-torch")


def is_new(value: Value, depth: int = 0) -> bool:
    """Whether a value is made of new numbers, such as `torch.randn` or `torch.zeros` gives."""
    if depth > 6:
        return False
    if isinstance(value, Expr):
        return any(is_new(arg, depth + 1) for arg in value.args)
    made = value.by if isinstance(value, Unknown) else None
    return made is not None and (is_kind(made.name, "new-numbers") or any(is_new(arg, depth + 1) for arg in made.args))


__all__ = ["is_new", "made_by_chance", "one_stream", "seed_of_all", "seeds_of"]
