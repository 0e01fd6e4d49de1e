"""Process groups that ranks do not create alike, and calls on a group by or about ranks outside of it: what DDP209 reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.program.model import Guard, Node, Program
from ddp_audit.program.reach import group_of, is_default, issues, members, worlds_by_size
from ddp_audit.program.values import MISSING, RANK, Alt, Const, Expr, Value, World, differs, evaluate

_ROOTS = ("src", "dst")
_REDUCES = ("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "broadcast_object_list")


@dataclass(frozen=True, slots=True, eq=False)
class Misuse:
    """One place of the kind, in two sentences."""

    node: Node
    message: str
    explanation: str
    severity: str | None = None


def misuses(program: Program) -> Iterator[Misuse]:
    """Every such place; one may come several times."""
    yield from _creations(program)
    yield from _roots(program)
    yield from _outsiders(program)


# ---- groups that are not made alike


def _creations(program: Program) -> Iterator[Misuse]:
    made = [n for n in program.of("new-group") if not _is_local(n)]
    for node in made:
        ranks = node.args.get("ranks")
        if ranks is not None and RANK in differs(ranks, worlds_of(program)) and not _only_itself(ranks, program):
            yield Misuse(
                node,
                f"Each rank asks here for a group of other ranks ({ranks.text or node.text}); new_group must be called by all "
                "ranks with the same lists in the same order.",
                "The groups of the process are counted, and ranks that give one number to different groups meet under one "
                "name or never. A rank makes the groups of the others too and keeps its own: "
                "`for ranks in lists: group = new_group(ranks)`.",
            )
            return
        guard = next((g for g in node.guards if ranks is not None and _asks_for_own(g, ranks)), None)
        if guard is not None:
            yield Misuse(
                node,
                f"Only the members of a group make it here ({guard.text}); new_group must be called by all ranks, also by those "
                "that are no members.",
                "The groups of a process are counted, so that from here on one group has different names on the ranks: they look "
                "for each other under these, and the next group, or the first collective on one, waits until the timeout. A rank "
                "makes the groups of the others too and keeps its own.",
            )
            return
    for one, other in _pairs(program):
        mine, theirs = ([n for n in made if issues(n, world)] for world in (one, other))
        asked = [_listed(n, one) for n in mine], [_listed(n, other) for n in theirs]
        if len(mine) == len(theirs) and all(a == b or MISSING in (a, b) for a, b in zip(*asked, strict=True)):
            continue
        ours, others = [n for n in mine if n not in theirs], [n for n in theirs if n not in mine]
        if ours or others:
            yield _made_by_some((ours or others)[0], others[0] if ours and others else None)
            return


def _asks_for_own(guard: Guard, ranks: Value) -> bool:
    """Whether a condition asks if this rank is in the list of several that a group is made of: `if rank in ranks`."""
    test = guard.test
    if not (guard.polarity and isinstance(test, Expr) and test.op == "in" and RANK in test.args[0].taint):
        return False
    return isinstance(ranks, Alt) and test.args[1] == ranks


def _made_by_some(node: Node, other: Node | None) -> Misuse:
    if other is not None:
        message = (
            "The ranks create their groups in different orders, or with different lists: some make this one while the others "
            f"make that of line {other.span.line}."
        )
    else:
        guard = next((g for g in node.guards if g.taint), None)
        who = "some ranks" if guard is None else guard.ranks()
        message = f"{who[:1].upper()}{who[1:]} can reach this new_group; all ranks must call it, also those that are no members."
    return Misuse(
        node,
        message,
        "The groups of a process are counted, so that from here on one group has different names on the ranks: they look for "
        "each other under these, and the next group, or the first collective on one, waits until the timeout. It does no harm "
        "only where no group is made later, and this one's members are the ranks that get here.",
    )


# ---- roots and callers outside of the group


def _roots(program: Program) -> Iterator[Misuse]:
    for node in program.of("collective"):
        name = next((n for n in _ROOTS if n in node.args), "")
        if not name or is_default(group_of(node) or Const(value=None)):
            continue
        for world in worlds_of(program):
            inside = members(group_of(node), world)
            root = evaluate(node.args[name], world)
            if not inside or max(inside) >= world.world_size or world.rank not in inside or not isinstance(root, int):
                continue
            if issues(node, world) and root not in inside:
                ranks = ", ".join(map(str, sorted(inside)))
                yield Misuse(
                    node,
                    f"{name} is {root} here, a global rank that is not in the group (ranks {ranks}): the members that "
                    f"call this {node.detail['op']} get a ValueError.",
                    f"{name} counts all ranks of the job and not those of the group. The position in the group goes into "
                    f"group_{name}, and dist.get_global_rank(group, position) translates it.",
                )
                break


def _outsiders(program: Program) -> Iterator[Misuse]:
    for node in program.of("collective"):
        group = group_of(node)
        if group is None or is_default(group) or node.detail["op"] not in _REDUCES or _asks_for_members(node, group):
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
                f"Rank {ranks} calls this {node.detail['op']} without being in the group: it gets a warning, and its own value "
                "stays as it was.",
                "A collective on a group returns at once on the ranks outside of it. That is no fault where those ranks do not "
                "use the value.",
                severity="warning",
            )


def worlds_of(program: Program) -> list[World]:
    """Every rank of every job that is looked at."""
    return [world for job in worlds_by_size(program.world_size) for world in job]


def _pairs(program: Program) -> Iterator[tuple[World, World]]:
    for job in worlds_by_size(program.world_size):
        yield from itertools.pairwise(job)


def _listed(node: Node, world: World) -> object:
    """The ranks that a call asks for on one rank: a sorted tuple, None for all, or MISSING."""
    ranks = node.args.get("ranks")
    if ranks is None or is_default(ranks):
        return None
    listed = evaluate(ranks, world)
    return tuple(sorted(listed)) if isinstance(listed, tuple) else MISSING


def _only_itself(ranks: Value, program: Program) -> bool:
    """Whether each rank asks for a group of one: then nobody looks for anybody."""
    listed = [evaluate(ranks, world) for world in worlds_of(program)]
    return all(isinstance(found, tuple) and len(found) == 1 for found in listed)


def _is_local(node: Node) -> bool:
    """Whether only the members need to call: they meet under a name that is made of the list."""
    value = node.args.get("use_local_synchronization")
    return value is not None and not (isinstance(value, Const) and not value.value)


def _asks_for_members(node: Node, group: Value) -> bool:
    """Whether some condition on the way speaks of the group or of membership."""
    names = {group.text, "member", "in ranks", "_group"}
    return any(name and name in guard.text for guard in node.guards for name in names)
