"""Who gets where: conditions asked rank by rank, and the collectives that some ranks issue while the others do not.

A collective is one-sided only where all three hold (the conditions of PARCOACH, a static analysis for MPI): it depends on a
condition, across calls; the condition can differ between ranks; and the ranks on the other side issue no matching collective.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddp_audit.findings import Span
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.differing import differs
from ddp_audit.program.meaning import says
from ddp_audit.program.model import Guard, Node, Program
from ddp_audit.program.nodes import CallNode, Collective, Traffic, Wrap
from ddp_audit.program.roots import roots
from ddp_audit.program.switched_options import the_option
from ddp_audit.program.tensors import on_rank
from ddp_audit.program.values import (
    DATA,
    ERROR,
    MISSING,
    RANK,
    Const,
    Expr,
    Ext,
    Items,
    Made,
    Obj,
    Taint,
    Unknown,
    Value,
    World,
    defaults_in,
    evaluate,
    holds,
    loop_leaves,
    option_leaf,
    truth,
    worlds,
)


@dataclass(frozen=True, slots=True, eq=False)
class UnmatchedCollective:
    """A collective that ranks on one side of `guard` issue alone, or (`counterpart`) against another one on the other side."""

    node: Traffic
    guard: Guard
    taint: Taint  # why the ranks diverge
    counterpart: Traffic | None = None
    difference: str = ""  # "reduce operation", "root" or "operation" where there is a counterpart


# ---- conditions


def local_taint(value: Value) -> Taint:
    """Why a condition differs between ranks, with the program's defaults; empty where it does not.

    The arm of a conditional expression that the defaults do not choose does not count.
    """
    world = worlds()[0]
    match value:
        case Expr(op="ifexp", args=(chooser, then, orelse)) if not chooser.taint:
            chosen = truth(chooser, world)
            if chosen is not None:
                return local_taint(then if chosen else orelse)
        case Expr(op="and" | "or" as op, args=args):
            if any(not arg.taint and truth(arg, world) == (op == "or") for arg in args):
                return frozenset()
            return frozenset().union(*(local_taint(arg) for arg in args))
        case Expr(op="not", args=(inner,)):
            return local_taint(inner)
        case Expr(op="<" | "<=" | ">" | ">=", args=args) if holds(value, world) is None and _has_limits(args):
            return frozenset({RANK})
        case Expr(op="==" | "!=" | "<" | "<=" | ">" | ">=", args=args) if holds(value, world) is None:
            counters = [_is_counter(arg) for arg in args if not isinstance(arg, Const)]
            if all(counters) or (any(counters) and DATA not in value.taint):
                return frozenset()
    if not isinstance(value, Expr) and _is_counter(value):
        return frozenset()
    return differs(value, worlds())


def limits_by_rank(test: Value) -> bool:
    """Whether a condition compares a counter with a number that is known and differs between the ranks of a job."""
    match test:
        case Expr(op="not", args=(inner,)):
            return limits_by_rank(inner)
        case Expr(op="and" | "or", args=args):
            return any(limits_by_rank(arg) for arg in args)
        case Expr(op="<" | "<=" | ">" | ">=", args=args):
            return _has_limits(args)
    return False


def _has_limits(args: Sequence[Value]) -> bool:
    numbers = [[[evaluate(arg, w) for w in job] for job in worlds_by_size(None)] for arg in args]
    known = [all(type(value) in (int, float) for job in of_one for value in job) for of_one in numbers]
    if sorted(known) != [False, True]:
        return False
    limit, counted = numbers[known.index(True)], args[known.index(False)]
    return any(len(set(job)) > 1 for job in limit) and _is_counter(counted)


def _is_counter(value: Value) -> bool:
    """Whether an operand reads as a count of steps, or is made of such by arithmetic; those advance alike on all ranks."""
    if isinstance(value, Const) or (says(value, "counter") and not says(value, "measure")):
        return True
    if isinstance(value, Expr) and value.args:
        return value.op == "%" or (value.op in ("+", "-", "*", "//") and all(_is_counter(arg) for arg in value.args))
    return isinstance(value, Expr) and not value.taint


def is_default(value: Value) -> bool:
    """Whether an argument that may be left out is left out, None, or the group of all ranks."""
    if isinstance(value, Ext):
        return value.name.endswith("group.WORLD")
    return isinstance(value, Const) and value.value is None


def members(group: Value | None, world: World) -> frozenset[int] | None:
    """The ranks of a process group in one job; None where they are not known."""
    everybody = frozenset(range(world.world_size))
    if group is None or is_default(group):
        return everybody
    group = on_rank(group, world)
    if isinstance(group, Unknown) and group.by is not None and group.by.name == "[]":
        return _chosen(group.by, world)
    if not isinstance(group, Obj) or group.kind != "group":
        return None
    ranks: Value | None = group.info
    if ranks is None or is_default(ranks):
        return everybody
    listed = rank_list(evaluate(ranks, world) if isinstance(ranks, Value) else MISSING)
    return frozenset(listed) if isinstance(listed, tuple) else None


def rank_list(listed: object) -> object:
    """What was computed where a list of ranks is asked for: the tuple as it is where it holds whole numbers alone, else MISSING."""
    return listed if isinstance(listed, tuple) and all(type(rank) is int for rank in listed) else MISSING


def _chosen(by: Made, world: World) -> frozenset[int] | None:
    """The ranks of the group that a rank takes from a list of groups."""
    groups, index = by.args[0], evaluate(by.args[1], world)
    if not isinstance(groups, Items) or not isinstance(index, int) or index < 0:
        return None
    if groups.many:
        places = list(turns(groups, world))
        return members(groups.items[0], places[index]) if index < len(places) else None
    return members(groups.items[index], world) if index < len(groups.items) else None


def turns(made: Items, world: World) -> Iterator[World]:
    """The worlds in which the one item of a comprehension over a range is each of its elements; none where they are not known."""
    over = made.over
    if not isinstance(over, Obj) or over.kind != "range" or made.count is None or len(made.items) != 1:
        return
    numbers = evaluate(over, world)
    place: Span = over.key[1]
    leaf_name = f"loop:{place.line:d}:{place.column - 1}"  # of a range that is written where it is iterated
    for index in range(len(numbers) if isinstance(numbers, tuple) else 0):
        yield at(leaf_name, index, world)


def at(leaf_name: str, index: int, world: World) -> World:
    """The world in one iteration of a loop, whose index is the leaf."""
    return World(world.rank, world.world_size, world.local_world_size, {**world.atoms, leaf_name: index})


# ---- one-sided collectives


def find_unmatched_collectives(program: Program) -> list[UnmatchedCollective]:
    """Collectives, DDP constructors included, that only some ranks issue; each node once, in order.

    Silent on a collective over a group that could not be followed, and on point-to-point operations.
    """
    found: dict[int, UnmatchedCollective] = {}
    for traffic in _roots(program):
        for nodes, atoms in _scenarios(traffic):
            for part in _one_sided_in(nodes, program, atoms):
                found.setdefault(part.node.number, part)
    return [found[number] for number in sorted(found)]


def _scenarios(traffic: Sequence[Traffic]) -> Iterator[tuple[list[Traffic], dict[str, Any]]]:
    """The traffic of the defaults, and with each option that brings more: the nodes there, and the value of the option.

    What only several options bring is taken with the defaults, as if these were no condition.
    """
    switched = {node.number: option for node in traffic if (option := the_option(node.guards)) is not None}
    yield [node for node in traffic if node.number not in switched], {}
    for option in dict.fromkeys(switched.values()):
        atoms = {option_leaf(option.name): True if option.value is None else option.value}
        world = World(0, 2, 2, atoms)
        there = [
            node
            for node in traffic
            if switched.get(node.number, option) == option
            and not any(
                truth(g.test, world) not in (None, g.polarity)
                for g in node.guards
                if not g.test.taint and _asks(g.test, option.name)
            )
        ]
        yield there, atoms


def _asks(test: Value, name: str) -> bool:
    return any(default.name == name for default in defaults_in(test))


def _one_sided_in(traffic: Sequence[Traffic], program: Program, atoms: dict[str, Any]) -> Iterator[UnmatchedCollective]:
    for job in worlds_by_size(program.world_size):
        ranks = [replace(world, atoms=atoms) for world in job] if atoms else job
        groups = {n.number: members(group_of(n), ranks[0]) or frozenset() for n in traffic}
        pairs = [(ranks[0], world) for world in ranks[1:]] + list(itertools.pairwise(ranks[1:]))
        for one, other in pairs:
            shared = [n for n in traffic if {one.rank, other.rank} <= groups[n.number]]
            yield from _between_ranks(shared, one, other, program.unread)
    yield from _between_answers(traffic, program.unread)


def worlds_by_size(world_size: int | None) -> list[list[World]]:
    """The ranks of each job that stands for all jobs."""
    every = worlds(world_size)
    return [[w for w in every if w.world_size == size] for size in sorted({w.world_size for w in every})]


def group_of(node: CallNode) -> Value | None:
    """The group that a collective or wrapper is given, None where it is given none."""
    return node.args.get("group", node.args.get("process_group"))


def _roots(program: Program) -> Iterator[list[Traffic]]:
    """Collectives of the script, and those of each function that nothing calls, in order of execution."""
    for nodes in roots(program):
        traffic: list[Traffic] = [n for n in nodes if isinstance(n, Collective) or (isinstance(n, Wrap) and n.style == "ddp")]
        if traffic:
            yield traffic


def _between_ranks(traffic: Sequence[Traffic], one: World, other: World, unread: Sequence[int]) -> Iterator[UnmatchedCollective]:
    """What two ranks of one job do not issue alike."""
    for mine, theirs in _apart(traffic, one, other, unread):
        for left, right, difference in _unmatched(mine, theirs):
            part = _part(left, right, difference, one, other)
            if part is not None:
                yield part


def met_in_branches(program: Program) -> Iterator[tuple[Collective, Collective, World, World]]:
    """Pairs of collectives of one kind that two ranks issue in different branches and that meet there, with these ranks."""
    for traffic in _roots(program):
        for job in worlds_by_size(program.world_size):
            for one, other in itertools.pairwise(job):
                for mine, theirs in _apart(traffic, one, other, program.unread):
                    for left, right in zip(mine, theirs, strict=False):
                        if _token(left) != _token(right):
                            break
                        if isinstance(left, Collective) and isinstance(right, Collective):
                            yield left, right, one, other


def _apart(
    traffic: Sequence[Traffic], one: World, other: World, unread: Sequence[int]
) -> Iterator[tuple[list[Traffic], list[Traffic]]]:
    """What each of two ranks issues alone between collectives that both reach at one place, and where nothing was passed over."""
    mine: list[Traffic] = []
    theirs: list[Traffic] = []
    for node in (*traffic, None):
        here, there = (False, False) if node is None else (issues(node, one), issues(node, other))
        if node is None or (here and there):
            if not _was_passed_over(unread, [*mine, *theirs], node):
                yield mine, theirs
            mine, theirs = [], []
        elif here:
            mine.append(node)
        elif there:
            theirs.append(node)


def _was_passed_over(unread: Sequence[int], alone: Sequence[Traffic], end: Traffic | None) -> bool:
    """Whether something was not read between the first of some collectives and the one behind them all."""
    first = min((node.number for node in alone), default=0)
    return bool(alone) and any(first <= number and (end is None or number <= end.number) for number in unread)


def _part(left: Traffic, right: Traffic | None, difference: str, one: World, other: World) -> UnmatchedCollective | None:
    for guard in left.guards:
        if RANK in guard.test.taint:
            answers = holds(guard.test, one), holds(guard.test, other)
            if None not in answers and answers[0] != answers[1]:
                return UnmatchedCollective(left, guard, frozenset({RANK}), right, difference)
    return None


def issues(node: Node, world: World) -> bool:
    """Whether a rank issues a collective: its guards let it pass, as far as they are known."""
    return all(holds(g.test, world) in (None, g.polarity) for g in node.guards if RANK in g.test.taint)


def _between_answers(traffic: Sequence[Traffic], unread: Sequence[int]) -> Iterator[UnmatchedCollective]:
    """What ranks issue where a condition on their own data, files, clock or random numbers holds, against where it does not."""
    keys: dict[str, Taint] = {}
    for node in traffic:
        for guard in node.guards:
            if guard.via in ("if", "ifexp") and not _by_rank(guard):
                taint = local_taint(guard.test)
                if taint and ERROR not in taint:
                    keys.setdefault(_key(guard)[0], taint)
    for key, taint in keys.items():
        yes: list[Traffic] = []
        no: list[Traffic] = []
        for entry in [*traffic, None]:
            mine = [] if entry is None else [g for g in entry.guards if _key(g)[0] == key]
            if entry is not None and mine:
                (yes if _key(mine[0])[1] else no).append(entry)
                continue
            for left, right, difference in [] if _was_passed_over(unread, [*yes, *no], entry) else _unmatched(yes, no):
                guard = next(g for g in left.guards if _key(g)[0] == key)
                if guard.via != "early-exit":
                    yield UnmatchedCollective(left, guard, taint, right, difference)
            yes, no = [], []


def _by_rank(guard: Guard) -> bool:
    """Whether a guard is computable by rank, and so belongs to the comparison of ranks."""
    return all(holds(guard.test, world) is not None for world in worlds(guard.world_size))


def _key(guard: Guard) -> tuple[str, bool]:
    """The condition of a guard without `not`, and what it has to be."""
    test, polarity, text = guard.test, guard.polarity, guard.text
    while isinstance(test, Expr) and test.op == "not":
        test, polarity = test.args[0], not polarity
        text = text.removeprefix("not").strip()
    return text, polarity


def _unmatched(mine: Sequence[Traffic], theirs: Sequence[Traffic]) -> Iterator[tuple[Traffic, Traffic | None, str]]:
    """Pairs of collectives that do not match, and those without a partner (the first of the pair is always a node).

    Collectives are compared within the branches of conditions that are equal on all ranks; what is left is matched across them,
    unless the branches exclude each other.
    """
    import difflib  # which few scripts need

    left_over: list[tuple[list[Traffic], list[Traffic]]] = []
    for place in dict.fromkeys(_place(n) for n in (*mine, *theirs)):
        ours, others = [n for n in mine if _place(n) == place], [n for n in theirs if _place(n) == place]
        swapped = _swapped(ours, others)
        if swapped is not None:
            yield (*swapped, "operation")
            continue
        matcher = difflib.SequenceMatcher(None, [_token(n) for n in ours], [_token(n) for n in others], autojunk=False)
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag != "equal":
                left_over.append((ours[a:b], others[c:d]))
                continue
            for left, right in zip(ours[a:b], others[c:d], strict=True):
                difference = _arguments_differ(left, right)
                if difference:
                    yield left, right, difference
    for ours, _ in left_over:
        for node in list(ours):
            partner = next(((r, n) for _, r in left_over for n in r if _may_meet(node, n)), None)
            if partner is not None:
                ours.remove(node)
                partner[0].remove(partner[1])
    for ours, others in left_over:
        if ours and others:
            # One operation, in a loop on one side alone: who sends how often is the matter of a protocol that is not followed.
            if _token(ours[0])[0] != _token(others[0])[0]:
                yield ours[0], others[0], "operation"
        else:
            for node in (*ours, *others):
                yield node, None, ""


def _swapped(ours: Sequence[Traffic], others: Sequence[Traffic]) -> tuple[Traffic, Traffic] | None:
    """The first two that meet where both sides issue the same operations in another order; None where they do not."""
    mine, theirs = [_token(n) for n in ours], [_token(n) for n in others]
    if (
        mine == theirs
        or sorted(mine, key=str) != sorted(theirs, key=str)
        or {len(n.loops) for n in (*ours, *others)} != {len(ours[0].loops)}
    ):
        return None
    return next((left, right) for left, right in zip(ours, others, strict=True) if _token(left) != _token(right))


def _place(node: Node) -> tuple[tuple[Span, bool], ...]:
    """The branches around a collective, from outside to the first condition in which ranks can differ."""
    outer = itertools.takewhile(lambda g: not g.test.taint, node.guards)
    return tuple((g.span, g.polarity) for g in outer if g.via != "early-exit")


def _may_meet(one: Traffic, other: Traffic) -> bool:
    """Whether two collectives match and no condition lets ranks reach only one of them."""
    excluded = {(span, not polarity) for span, polarity in _place(other)}
    return _token(one) == _token(other) and not excluded & set(_place(one)) and not _arguments_differ(one, other)


def _token(node: Traffic) -> tuple[object, ...]:
    op = node.called.lower()
    return (op, len(node.loops))


def _arguments_differ(left: Traffic, right: Traffic) -> str:
    one, other = reduce_op(left), reduce_op(right)
    if one and other and one != other:
        return "reduce operation"
    for name in ("src", "dst", "root"):
        a, b = left.args.get(name), right.args.get(name)
        if isinstance(a, Const) and isinstance(b, Const) and a.value != b.value:
            return "root"
    return ""


def reduce_op(node: Traffic) -> str:
    """The reduce operation of a collective as torch names it, SUM where none is given; empty where it is not known."""
    if not isinstance(node, Collective) or node.hidden or not is_kind(node.op, "takes-operation"):
        return ""
    value = node.args.get("op")
    if value is None:
        return "SUM"
    return value.name.rsplit(".", 1)[-1].upper() if isinstance(value, Ext) else ""


# ---- words


def anchor(node: Node, guard: Guard) -> Span:
    """Where a reader meets the fault: the call that stands under the guard and leads to the node, or the node itself."""
    return node.calls[guard.depth] if guard.depth < len(node.calls) else node.span


__all__ = [
    "UnmatchedCollective",
    "anchor",
    "at",
    "find_unmatched_collectives",
    "group_of",
    "holds",
    "is_default",
    "issues",
    "local_taint",
    "loop_leaves",
    "members",
    "met_in_branches",
    "reduce_op",
    "turns",
    "worlds_by_size",
]  # fmt: skip
