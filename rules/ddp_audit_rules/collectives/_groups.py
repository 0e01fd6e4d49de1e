"""Process groups that ranks do not create alike, and calls on a group by or about ranks outside of it: what DDP209 reports."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.tree.nodes import Collective, NewGroup, Node, Program
from ddp_audit.tree.questions import group_of, is_default, is_kind, issues, members, says, worlds_by_size
from ddp_audit.tree.values import Const, Unknown, Value, World, behind, evaluate, the_object
from ddp_audit_rules.collectives._group_creations import Misuse, creations, in_loops, lists_in_turn, worlds_of

_ROOTS = ("src", "dst")
_POSITION = "torch.distributed.get_rank"  # with a group: the position in it
_COUNTS_ALL = (
    "{0} counts all ranks of the job and not those of the group. The position in the group goes into group_{0}, and "
    "dist.get_global_rank(group, position) translates it."
)


def misuses(program: Program) -> Iterator[Misuse]:
    """Every such place; one may come several times."""
    yield from creations(program)
    yield from in_loops(program)
    yield from _roots(program)
    yield from _roots_of_turns(program)
    yield from _own_positions(program)
    yield from _outsiders(program)


def _roots(program: Program) -> Iterator[Misuse]:
    for node in program.of(Collective):
        name = next((n for n in _ROOTS if n in node.args), "")
        if not name or is_default(group_of(node) or Const(value=None)):
            continue
        for world in worlds_of(program):
            inside = members(group_of(node), world)
            root = _root(node.args[name], group_of(node), inside, world)
            if not inside or max(inside) >= world.world_size or world.rank not in inside or not isinstance(root, int):
                continue
            if issues(node, world) and root not in inside:
                ranks = ", ".join(map(str, sorted(inside)))
                yield Misuse(
                    node,
                    f"{name} is {root} here, a global rank that is not in the group (ranks {ranks}): the members that "
                    f"call this {node.op} get a ValueError.",
                    _COUNTS_ALL.format(name),
                )
                break


def _roots_of_turns(program: Program) -> Iterator[Misuse]:
    """Collectives with one fixed root on groups that a loop makes of other ranks in each turn."""
    made = {n.object.key: n for n in program.of(NewGroup) if n.object is not None}
    for node in program.of(Collective):
        name = next((n for n in _ROOTS if n in node.args), "")
        root, group = node.args.get(name), the_object(group_of(node), "group")
        place = made.get(group.key) if group is not None else None
        ranks = place.args.get("ranks") if place is not None else None
        if not isinstance(root, Const) or type(root.value) is not int or place is None or ranks is None or not place.loops:
            continue
        for job in worlds_by_size(program.world_size):
            lists = [lists_in_turn(ranks, place.loops[-1], world) for world in job]
            known = all(one == lists[0] and all(isinstance(listed, tuple) for listed in one) for one in lists)
            others = [listed for listed in lists[0] if isinstance(listed, tuple) and listed and root.value not in listed]
            callers = {world.rank for world in job if issues(node, world)}
            if known and others and len(lists[0]) > 1 and callers & set(others[0]):
                members = ", ".join(map(str, sorted(others[0])))
                yield Misuse(
                    node,
                    f"{name} is {root.value} on every rank here, and the groups of line {place.span.line} that it is not in (such "
                    f"as that of ranks {members}) get a ValueError in this {node.op}.",
                    _COUNTS_ALL.format(name),
                )
                break


def _own_positions(program: Program) -> Iterator[Misuse]:
    """Collectives whose root is the caller's own position in the group: each member names another one."""
    for node in program.of(Collective):
        name = next((n for n in _ROOTS if n in node.args), "")
        group = group_of(node)
        if not name or group is None or is_default(group) or node.rank_guards or not _is_position(node.args[name], group):
            continue
        yield Misuse(
            node,
            f"{name} is the caller's own position in the group here: every member of this {node.op} names another root, "
            "and where the positions are not ranks of the group it gets a ValueError.",
            f"{name} is one global rank, the same on all members. The position in the group goes into group_{name}, and "
            "dist.get_global_rank(group, position) translates it. It does no harm in a group of one rank.",
        )


def _is_position(root: Value, group: Value) -> bool:
    """Whether a root is `dist.get_rank(group)` of that very group."""
    made = root.by if isinstance(root, Unknown) else None
    return made is not None and made.name == _POSITION and made.args == (group,)


def _root(root: Value, group: Value | None, inside: frozenset[int] | None, world: World) -> object:
    """The root that a rank names: also by its position in the group."""
    if group is not None and inside and world.rank in inside and _is_position(root, group):
        return sorted(inside).index(world.rank)
    return evaluate(root, world)


def _outsiders(program: Program) -> Iterator[Misuse]:
    for node in program.of(Collective):
        group = group_of(node)
        if group is None or is_default(group) or not is_kind(node.op, "result-on-all") or _asks_for_members(node, group):
            continue
        left_out = []
        for job in worlds_by_size(program.world_size):
            inside = [members(group, world) for world in job]
            outside = [w.rank for w, ranks in zip(job, inside, strict=True) if ranks is not None and w.rank not in ranks]
            known = [w for w in job if w.rank in outside and w.world_size > max(inside[0] or {0})]
            left_out.append([w.rank for w in known if node.reached_by(w)])
        if all(left_out):
            ranks = ", ".join(map(str, left_out[0]))
            yield Misuse(
                node,
                f"Rank {ranks} calls this {node.op} without being in the group: it gets a warning, and its own value "
                "stays as it was.",
                "A collective on a group returns at once on the ranks outside of it. It is harmless where those ranks do not "
                "use the value.",
                severity="warning",
            )


def _asks_for_members(node: Node, group: Value) -> bool:
    """Whether some condition on the way speaks of the group or of membership."""
    return any(
        says(guard.text, "group-member") or any(part.text == group.text != "" for part in behind(guard.test))
        for guard in node.guards
    )
