"""Process groups that hold a part of the ranks of a job: those of tensor, pipeline or expert parallelism."""

from __future__ import annotations

from ddp_audit.tree.nodes import Program, Wrap
from ddp_audit.tree.questions import group_of, is_default, rank_list
from ddp_audit.tree.values import Items, Obj, Unknown, Value, World, evaluate, loop_leaves, options

_JOBS = (World(0, 4, 4), World(3, 4, 4), World(0, 8, 8), World(5, 8, 8))


def is_part_of_job(group: Value | None) -> bool:
    """Whether a group is made of some ranks of the job and not of all; False where that is not known."""
    if group is None or is_default(group):
        return False
    made = [one for option in options(group) for one in _groups_in(option)]
    return bool(made) and all(_is_part(one.info) for one in made)


def _groups_in(value: Value) -> list[Obj]:
    """The groups that a value may be: itself, or those of the list that it is an element of."""
    if isinstance(value, Unknown) and value.by is not None and value.by.name == "[]" and isinstance(value.by.args[0], Items):
        return [group for item in value.by.args[0].items for option in options(item) for group in _groups_in(option)]
    return [value] if isinstance(value, Obj) and value.kind == "group" else []


def _is_part(ranks: object) -> bool:
    if not isinstance(ranks, Value) or is_default(ranks):
        return False
    parts = [*ranks.cls, ranks.info] if isinstance(ranks, Obj) and isinstance(ranks.cls, tuple) else [ranks]
    turns = {name for part in parts if isinstance(part, Value) for name in loop_leaves(part)}
    first = dict.fromkeys(turns, 0)
    known = []
    for world in _JOBS:
        listed = rank_list(evaluate(ranks, World(world.rank, world.world_size, world.local_world_size, first)))
        if isinstance(listed, tuple):
            known.append(len(listed) < world.world_size)
    return all(known) if known else bool(turns)  # a loop that makes another group in each turn makes parts


def replicates_in_parts(program: Program) -> bool:
    """Whether a wrapper averages over a part of the ranks, so that the data is divided by the number of replicas."""
    return any(wrap.style == "ddp" and is_part_of_job(group_of(wrap)) for wrap in program.of(Wrap))
