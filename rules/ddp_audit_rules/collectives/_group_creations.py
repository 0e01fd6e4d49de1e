"""Process groups that ranks do not create alike, and what the calls that create them are given: the first part of DDP209."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.tree.nodes import Guard, Loop, NewGroup, Node, Program
from ddp_audit.tree.questions import at, is_default, issues, rank_list, turns, worlds_by_size
from ddp_audit.tree.values import MISSING, RANK, Alt, Const, Expr, Items, Obj, Value, World, differs, evaluate


@dataclass(frozen=True, slots=True, eq=False)
class Misuse:
    """One place of the kind, in two sentences."""

    node: Node
    message: str
    explanation: str
    severity: str | None = None


def creations(program: Program) -> Iterator[Misuse]:
    """The first call of new_group that the ranks do not make alike, by its list, its guards or its place in the order."""
    made = [n for n in program.of(NewGroup) if not _is_local(n)]
    first = worlds_of(program)[0]
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
        listed = ranks if _made_in_turn(node, first) is None else None  # where the lists are known, they tell
        guard = next((g for g in node.guards if listed is not None and _asks_for_own(g, listed)), None)
        if guard is not None:
            yield Misuse(
                node,
                f"Only the members of a group make it here ({guard.text}); new_group must be called by all ranks, members or not.",
                "The groups of a process are counted, so that from here on one group has different names on the ranks: they look "
                "for each other under these, and the next group, or the first collective on one, waits until the timeout. A rank "
                "makes the groups of the others too and keeps its own.",
            )
            return
    for one, other in _pairs(program):
        mine, theirs = ([n for n in made if issues(n, world) and _made_in_turn(n, first) is None] for world in (one, other))
        asked = [_listed(n, one) for n in mine], [_listed(n, other) for n in theirs]
        if len(mine) == len(theirs) and all(a == b or MISSING in (a, b) for a, b in zip(*asked, strict=True)):
            continue
        ours, others = [n for n in mine if n not in theirs], [n for n in theirs if n not in mine]
        if ours or others:
            yield _made_by_some((ours or others)[0], others[0] if ours and others else None)
            return


def in_loops(program: Program) -> Iterator[Misuse]:
    """new_group in a loop over known lists, under a test of membership: each rank makes the groups alone that it is in."""
    for node in program.of(NewGroup):
        for job in worlds_by_size(program.world_size):
            made = [_made_in_turn(node, world) for world in job]
            asked = [own for own in made if own is not None]
            if len(asked) < len(made) or all(one == other for one, other in itertools.pairwise(asked)):
                continue
            if any(len(ranks) > 1 for own in asked for ranks in own):
                yield Misuse(
                    node,
                    "Each rank makes only the groups here that it is a member of; new_group must be called by all ranks with the "
                    "same lists in the same order.",
                    "The groups of the process are counted, and ranks that give one number to different groups meet under one "
                    "name or never. A rank makes the groups of the others too and keeps its own: "
                    "`group = new_group(ranks)` for every list, with the test around the keeping alone.",
                )
                break


def _made_by_some(node: Node, other: Node | None) -> Misuse:
    if other is not None:
        message = (
            "The ranks create their groups in different orders, or with different lists: some make this one while the others "
            f"make that of line {other.span.line}."
        )
    else:
        guard = next((g for g in node.guards if g.taint), None)
        who = "some ranks" if guard is None else guard.ranks()
        message = f"{who[:1].upper()}{who[1:]} can reach this new_group; all ranks must call it, members or not."
    return Misuse(
        node,
        message,
        "The groups of a process are counted, so that from here on one group has different names on the ranks: they look for "
        "each other under these, and the next group, or the first collective on one, waits until the timeout. It does no harm "
        "only where no group is made later, and this one's members are the ranks that get here.",
    )


def _made_in_turn(node: NewGroup, world: World) -> list[tuple[int, ...]] | None:
    """The lists whose groups a rank makes in the loop around, under `if rank in ranks`; None where that is not the form."""
    ranks, loop = node.args.get("ranks"), node.loops[-1] if node.loops else None
    tests = [guard for guard in node.guards if guard.taint]
    if ranks is None or loop is None or _is_local(node) or len(tests) != 1 or not tests[0].polarity:
        return None
    test = tests[0].test
    if not isinstance(test, Expr) or test.op != "in" or test.args[1] != ranks:
        return None
    found = lists_in_turn(ranks, loop, world)
    mine = evaluate(test.args[0], world)
    lists = [listed for listed in found if isinstance(listed, tuple)]
    return [listed for listed in lists if mine in listed] if lists and len(lists) == len(found) and mine is not MISSING else None


def lists_in_turn(ranks: Value, loop: Loop, world: World) -> list[object]:
    """The lists of ranks that the turns of a loop make groups of, as far as they can be computed."""
    over, found = loop.over, list[object]()
    if isinstance(over, Items) and over.keys is None and not over.many:
        found = [evaluate(item, world) for item in over.items]
    elif isinstance(over, Items) and len(over.items) == 1:
        found = [evaluate(over.items[0], here) for here in turns(over, world)]
    elif isinstance(over, Obj) and over.kind == "range" and isinstance(numbers := evaluate(over, world), tuple):
        found = [evaluate(ranks, at(loop.leaf, index, world)) for index in range(len(numbers))]
    return [rank_list(listed) for listed in found]


def _asks_for_own(guard: Guard, ranks: Value) -> bool:
    """Whether a condition asks if this rank is in the list of several that a group is made of: `if rank in ranks`."""
    test = guard.test
    if not (guard.polarity and isinstance(test, Expr) and test.op == "in" and RANK in test.args[0].taint):
        return False
    return isinstance(ranks, Alt) and test.args[1] == ranks


def _only_itself(ranks: Value, program: Program) -> bool:
    """Whether each rank asks for a group of one: then nobody looks for anybody."""
    listed = [evaluate(ranks, world) for world in worlds_of(program)]
    return all(isinstance(found, tuple) and len(found) == 1 for found in listed)


def _is_local(node: NewGroup) -> bool:
    """Whether only the members need to call: they meet under a name that is made of the list."""
    value = node.args.get("use_local_synchronization")
    return value is not None and not (isinstance(value, Const) and not value.value)


def _listed(node: NewGroup, world: World) -> object:
    """The ranks that a call asks for on one rank: a sorted tuple, None for all, or MISSING."""
    ranks = node.args.get("ranks")
    if ranks is None or is_default(ranks):
        return None
    listed = rank_list(evaluate(ranks, world))
    return tuple(sorted(listed)) if isinstance(listed, tuple) else MISSING


def _pairs(program: Program) -> Iterator[tuple[World, World]]:
    for job in worlds_by_size(program.world_size):
        yield from itertools.pairwise(job)


def worlds_of(program: Program) -> list[World]:
    """Every rank of every job that is looked at."""
    return [world for job in worlds_by_size(program.world_size) for world in job]
