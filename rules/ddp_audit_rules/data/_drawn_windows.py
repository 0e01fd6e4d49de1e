"""Indices of training windows that are drawn from a whole set, the seed of their stream, and other draws from it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ddp_audit.tree.nodes import Draw, Drawing, Node, OwnDraw, Program, RandomNumbers, Seed
from ddp_audit.tree.questions import by_rank, code_at, dotted, every, function_at, is_kind, seed_of_all, seeds_of
from ddp_audit.tree.values import MISSING, World, evaluate, holds

_MOST_RANKS = 64  # of a job whose ranks are asked one by one


def is_window(program: Program, node: Drawing) -> bool:
    """Whether a draw takes indices of a whole set that the same function then reads: no permutation, no part that differs by rank.

    Weighted draws are importance sampling, and indices of something that is not read are random input.
    """
    if is_kind(node.what, "order-of-whole-set") or "p" in node.args:
        return False
    if any(by_rank(value) for value in node.args.values()):
        return False
    call = code_at(program, node.span, ast.Call)
    name = next(filter(None, map(_measured, every(call))), "") if call is not None else ""
    if not name:
        return True
    function = function_at(program, node.span.path, node.span.line) or program.files[node.span.path].tree
    return any(isinstance(inner, ast.Subscript) and dotted(inner.value) == name for inner in every(function))


def _measured(code: ast.AST) -> str:
    """What some code asks the length of: `len(data)`, `data.shape[0]`; empty where it does not."""
    match code:
        case ast.Call(func=ast.Name(id="len"), args=[whole]):
            return dotted(whole)
        case ast.Subscript(value=ast.Attribute(value=whole, attr="shape"), slice=ast.Constant(value=0)):
            return dotted(whole)
    return ""


def seed_before(program: Program, node: Drawing) -> tuple[Seed | None, bool]:
    """The last seed that all ranks set before a draw in the same stream, and whether it is equal on all of them."""
    seeds = [n for n in seeds_of(program, node.stream) if n.number < node.number and not n.rank_guards]
    if not seeds:
        return None, False
    return seeds[-1], seed_of_all(seeds[-1]) is not MISSING


def entered(others: Sequence[Node]) -> list[str]:
    """Where the paths to further draws leave the common one: the innermost call before the draw, each once."""
    places = [(n.calls[-1] if n.calls else n.span) for n in others]
    return list(dict.fromkeys(place.place for place in places))[:3]


def draw_alike(program: Program, node: Drawing, seed: Seed, equal: bool) -> tuple[list[int], int] | None:
    """The ranks of a job whose stream of a draw stays equal, and the size of the job; None where no two are known to be such.

    Ranks that take a path with more draws from the stream leave the others. The job is the one that is asked about, or one of
    four ranks. Where the seed is not equal on all ranks, most of them have to share it: parts of a model that is split over
    ranks share theirs two by two, and rightly so.
    """
    size = program.world_size or 4
    if size > _MOST_RANKS:
        size = _MOST_RANKS
    apart = [n for n in program.of(Draw, OwnDraw, RandomNumbers) if n.stream == node.stream and n.rank_guards]
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank in range(size):
        world = World(rank, size, size)
        taken = tuple(_takes(n, world) for n in apart)
        value = evaluate(seed.seed, world)
        if None in taken or (value is MISSING and not equal):
            return None
        groups.setdefault((value, *taken), []).append(rank)
    largest = max(groups.values(), key=len)
    if len({value for value, *_ in groups}) > 1 and len(largest) * 2 <= size:
        return None
    return (largest, size) if len(largest) > 1 else None


def _takes(node: Node, world: World) -> bool | None:
    """Whether a rank comes to a node where all that is equal on all ranks lets it."""
    said = [(holds(guard.test, world), guard.polarity) for guard in node.rank_guards]
    if any(holding is not None and holding != wanted for holding, wanted in said):
        return False
    return None if any(holding is None for holding, _ in said) else True


def listed(ranks: list[int]) -> str:
    """Ranks in words: `1, 2 and 3`, `1 to 7`."""
    if len(ranks) > 3 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return f"{', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
