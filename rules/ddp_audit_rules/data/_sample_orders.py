"""What makes a data set another one on each rank, or gives it another order: splits, shuffles, listings and sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddp_audit.findings import Fix, Span
from ddp_audit.tree.nodes import Draw, Node, Program, RandomNumbers, Seed, Spawn, Split
from ddp_audit.tree.questions import (
    HASHES,
    LISTING,
    Written,
    calls_of,
    calls_of_kind,
    calls_with,
    every,
    is_kind,
    seeds_of,
    unordered,
)
from ddp_audit.tree.values import ClassInfo, Const, Items, Made, Obj, Unknown, Value, behind, options
from ddp_audit_rules.facts.one_node import one_node_only

_PLACES = (LISTING, HASHES)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a data set differs between ranks, at which place."""

    span: Span
    message: str
    when: str
    severity: str
    node: Node | None = None
    sure: bool = True
    fix: Fix | None = None


def causes(program: Program, data: Value, depth: int = 0) -> Iterator[Cause]:
    """What makes a data set another one on each rank, looked for in what it was made of."""
    for option in options(data):
        if not isinstance(option, Obj) or option.kind != "dataset" or depth > 4:
            continue
        if option.cls == "random_split":
            yield from _split(program, option)
        parts = [part for part in option.info or () if isinstance(part, Value)]
        held = program.contents.get(option.key, {})
        for part in (*parts, *held.values()):
            if isinstance(part, Obj):
                yield from causes(program, part, depth + 1)
                continue
            for value in behind(part, _sorted):
                yield from _shuffled(program, value)
        if not (isinstance(option.cls, ClassInfo) and calls_of(option.cls, "sort", "sorted")):
            yield from _in_any_order(program, option, [*parts, *held.values()])


def _sorted(value: Value) -> bool:
    return isinstance(value, Unknown) and value.by is not None and value.by.name == "builtins.sorted"


def _split(program: Program, part: Obj) -> Iterator[Cause]:
    for node in program.of(Split):
        generator = node.args.get("generator")
        if node.span != part.made or (generator is not None and not (isinstance(generator, Const) and generator.value is None)):
            continue
        seeding = _seeded(program, node, "torch")
        if seeding is None:
            continue
        message = (
            f"`{node.text}` draws from {seeding[0]}, so each rank has a split of its own and trains on what another evaluates on."
        )
        fix = Fix("unsafe", "split with `generator=torch.Generator().manual_seed(seed)`")
        yield Cause(node.span, message, seeding[1], "warning" if seeding[1] else "error", node, fix=fix)


def _shuffled(program: Program, value: Value) -> Iterator[Cause]:
    if not (isinstance(value, Unknown) and value.by is not None and is_kind(value, "shuffles")):
        return
    by: Made = value.by
    generator = by.argument("generator")
    if generator is not None and not (isinstance(generator, Const) and generator.value is None):
        return
    last = by.name.rsplit(".", 1)[-1]
    nodes = [n for n in program.of(RandomNumbers, Draw) if n.what.rsplit(".", 1)[-1] == last]
    at = by.argument("at")
    if isinstance(at, Const):
        nodes = [n for n in nodes if n.span == at.value]
    seeding = _seeded(program, nodes[0], by.name.partition(".")[0]) if nodes else None
    if seeding is not None:
        message = f"`{nodes[0].text}` draws from {seeding[0]}, so each rank has the samples in an order of its own."
        sure = not nodes[0].guards  # under a condition another way may have been taken
        yield Cause(nodes[0].span, message, seeding[1], "warning" if seeding[1] else "error", nodes[0], sure)


def _seeded(program: Program, node: Node, library: str) -> tuple[str, str] | None:
    """From what a draw is seeded differently on the ranks, and when it is not; None where all ranks draw alike."""
    spawns = [n for n in program.of(Spawn) if n.span not in node.calls and n.number > node.number]
    if node.rank_guards or spawns or not node.is_called:
        return None
    seeds = [n for n in seeds_of(program, library) if n.number < node.number and not n.rank_guards]
    if not seeds:
        known = {(n.span.path, n.span.line) for n in program.of(Seed)}
        calls = calls_with(program, "seeds")
        elsewhere = any((call.path, call.line) not in known for call in calls)  # in a call that was not followed
        return None if elsewhere else ("a generator that no seed starts", "")
    last = seeds[-1]
    if last.seed.taint:
        return f"a generator that line {last.span.line} seeds differently on each rank", ""
    if any(guard.against_default for guard in last.guards):
        return "a generator that no seed starts by default", f"With the seed of line {last.span.line} all ranks draw alike."
    return None


def _in_any_order(program: Program, data: Obj, values: list[Value]) -> Iterator[Cause]:
    """A listing or a set behind the samples that was not sorted, by the values that still have no order."""
    for value in values:
        found = next((why for inner in _elements(value) if (why := unordered(inner)) is not None), None)
        if found is None or found.reason not in _PLACES or data.made is None:
            continue
        if found.reason == LISTING and one_node_only(program):
            continue  # all ranks list the folder of one host
        span = _place(data, found.reason)
        if found.reason == LISTING:
            message = "The data set holds its files as the file system lists them, an order that another host need not have."
            when = "On one host, or one shared file system, the ranks mostly see one order."
        else:
            message = "The data set follows the order of a set, which is another one in each process."
            when = "A set of numbers, or one PYTHONHASHSEED for all ranks, has the same order everywhere."
        fix = (
            Fix("safe", "sort what the listing gives", "listing", "put `sorted(..)` around the listing")
            if found.reason == LISTING
            else None
        )
        yield Cause(span, message, when, "warning", None, found.sure, fix)
        return


def _elements(value: Value) -> Iterator[Value]:
    """A value, and what it takes its elements from."""
    for inner in behind(value, _sorted):
        if _sorted(inner):
            continue
        yield inner
        if isinstance(inner, Items) and inner.over is not None:
            yield inner.over


def _place(data: Obj, reason: str) -> Span:
    """The line that lists or makes the set, in the data set's class; else the place where the data set is made."""
    assert data.made is not None
    if isinstance(data.cls, ClassInfo):
        found: list[Written[Any]] = [*(calls_of_kind(data.cls, "lists-files") if reason == LISTING else calls_of(data.cls, "set"))]
        if reason == HASHES:
            kinds = (ast.SetComp, ast.DictComp)
            found += [Written(data.cls.frame.source, node) for node in every(data.cls.node) if isinstance(node, kinds)]
        if found:
            return min(found, key=lambda one: one.line).whole_line
    return data.made
