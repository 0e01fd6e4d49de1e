"""Ranks and world sizes that an interpreted run reads before there is a process group, and that are used when there is one.

A helper that answers 0 or 1 without a process group is right without one. A number that was kept from that time is not: it
makes each rank rank 0 of 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact.values import Function, Lib, Scope

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_OF_GROUP = ("torch.distributed.get_rank", "torch.distributed.get_world_size")
_MOST_PARTS = 8  # of a tuple that a helper gives


@dataclass(frozen=True, slots=True)
class Read:
    """Where a rank or world size was asked for too early, and by what function, if by one."""

    path: str
    line: int
    helper: str = ""


class Early(int):
    """A number that stands in for a rank or a world size, because there was no process group when it was read."""

    read: Read


def returned(it: Interpreter, function: Function, asked: int, value: Any) -> Any:
    """What a function gives back. `asked` is how often the program had found no process group before it ran."""
    if it.asked_early == asked or it.initialized or isinstance(function.node, ast.Lambda):
        return value
    return _marked(it, value, function.name) if _asks(it, function.node.body, function.scope) else value


def chosen(it: Interpreter, node: ast.IfExp, asked: int, scope: Scope, value: Any) -> Any:
    """What a conditional expression gives."""
    if it.asked_early == asked or it.initialized or not _asks(it, [node.body, node.orelse], scope):
        return value
    return _marked(it, value)


def left_alone(it: Interpreter, statements: Iterable[ast.stmt], asked: int, scope: Scope) -> None:
    """Variables that the statements which did not run would have given a rank hold what they held, or what other ones gave them."""
    if it.asked_early == asked or it.initialized:
        return
    for statement in statements:
        if isinstance(statement, ast.Assign) and _asks(it, [statement.value], scope):
            for target in statement.targets:
                for name in target.elts if isinstance(target, ast.Tuple) else (target,):
                    if isinstance(name, ast.Name) and name.id in scope.variables:
                        scope.variables[name.id] = _marked(it, scope.variables[name.id])


def carried(it: Interpreter, left: Any, right: Any, made: Any) -> Any:
    """What was computed of two numbers: a number that stands in too, before there is a group; afterwards this is a use."""
    if type(left) is not Early and type(right) is not Early:
        return made
    if it.initialized:
        used(it, (left, right))
        return made
    found = left if type(left) is Early else right
    return _early(made, found.read) if type(made) is int else made


def used(it: Interpreter, values: Iterable[Any]) -> None:
    """Numbers are used; where there is a group by now, those that were read too early are wrong."""
    if not it.initialized:
        return
    for value in values:
        if type(value) is Early and it.frames:
            it.early_uses.setdefault(value.read, (it.frames[-1].source.path, it.frames[-1].line))


def given(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """A library gets numbers, to shard data or to seed; what is printed or logged is not used."""
    if it.initialized and (name.startswith("torch.") or name == "builtins.range"):
        used(it, (*args, *kwargs.values()))


def _marked(it: Interpreter, value: Any, helper: str = "") -> Any:
    """The value with the numbers that are neither this rank nor the number of ranks marked."""
    if isinstance(value, tuple) and len(value) <= _MOST_PARTS:
        return tuple(_marked(it, part, helper) for part in value)
    if type(value) is not int or value in (it.rank, it.world_size) or not it.frames:
        return value
    return _early(value, Read(it.frames[-1].source.path, it.frames[-1].line, helper))


def _early(value: int, read: Read) -> Early:
    made = Early(value)
    made.read = read
    return made


def _calls_within(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def _asks(it: Interpreter, nodes: Iterable[ast.AST], scope: Scope) -> bool:
    """Whether some code asks the process group for the rank or the number of ranks itself."""
    calls = [call for node in nodes for call in scope.source.fact("calls within", node, _calls_within)]
    return any(_name(call.func, scope) in _OF_GROUP for call in calls)


def _name(node: ast.expr, scope: Scope) -> str:
    """The full name of a library's function; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    holder: Scope | None = scope
    while holder is not None and node.id not in holder.variables:
        holder = holder.parent
    found = None if holder is None else holder.variables[node.id]
    return ".".join((found.name, *parts)) if isinstance(found, Lib) else ""
