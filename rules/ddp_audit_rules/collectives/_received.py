"""Broadcasts into a list or tensor that nothing reads afterwards: what DDP214 reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddp_audit.tree.nodes import Collective, Program
from ddp_audit.tree.questions import arms_around, code_at, first_of_each_place, function_at, is_kind
from ddp_audit.tree.values import Const, Ext, Items, Unknown, Value

_OPS = {"broadcast": "tensor", "broadcast_object_list": "object_list"}
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, slots=True)
class Unread:
    """A broadcast whose result is lost, and the names that the ranks go on with instead."""

    node: Collective
    names: tuple[str, ...]  # what was put into the temporary and is read afterwards
    holder: str  # the variable that holds what came, empty without one


def unread(program: Program) -> Iterator[Unread]:
    """Every such place."""
    for node in first_of_each_place(n for n in program.of(Collective) if n.op in _OPS and not n.hidden):
        found = _found(program, node)
        if found is not None:
            yield found


def _found(program: Program, node: Collective) -> Unread | None:
    call, path, line = code_at(program, node.span, ast.Call), node.span.path, node.span.line
    if call is None:
        return None
    function = function_at(program, path, line)
    scope = function or program.files[path].tree
    loops = [arm.statement for arm in arms_around(program, path, line) if isinstance(arm.statement, _LOOPS) and arm.part == "body"]
    buffer = _buffer(call, node.op)
    holder = ""
    if isinstance(buffer, ast.Name) and function is not None:
        made = _only_value(function, buffer.id)
        if made is None or _is_read(scope, buffer.id, call, loops, made):
            return None
        holder, buffer = buffer.id, made
    if buffer is None or not _is_new(buffer) or _is_constant(node.args.get(_OPS[node.op])):
        return None
    sent = dict.fromkeys(_names_in(buffer))
    return Unread(node, read, holder) if (read := tuple(n for n in sent if _is_used_after(scope, n, call, loops))) else None


def _buffer(call: ast.Call, op: str) -> ast.expr | None:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == _OPS[op]), None)
    return call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else given


def _is_new(buffer: ast.expr) -> bool:
    """Whether an expression makes a list or tensor that nothing else holds."""
    if isinstance(buffer, (ast.List, ast.ListComp)):
        return True
    if not isinstance(buffer, ast.Call):
        return False
    function = buffer.func
    return is_kind(function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", ""), "new-memory")


def _is_constant(value: Value | None) -> bool:
    """Whether what is sent is the same on all ranks anyway: such a broadcast only makes the ranks meet."""
    if isinstance(value, Items):
        return not value.many and all(map(_is_constant, value.items))
    if isinstance(value, Const):
        return True
    if isinstance(value, Unknown) and value.by is not None and not value.taint and not value.deps:
        return is_kind(value, "equal-where-arguments-are") and all(map(_is_constant, value.by.args))
    return isinstance(value, Ext)


def _only_value(scope: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """What a variable of a function is bound to, where it is bound once and by a plain assignment."""
    stores = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
    bound = [s for s in ast.walk(scope) if isinstance(s, ast.Assign) and any(t in stores for t in s.targets)]
    outside = any(isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names for n in ast.walk(scope))
    return bound[0].value if len(stores) == 1 and len(bound) == 1 and not outside else None


def _is_read(scope: ast.AST, name: str, call: ast.Call, loops: Sequence[ast.AST], made: ast.expr) -> bool:
    """Whether a variable is read but in the call and before it."""
    inside = {id(n) for part in (call, made) for n in ast.walk(part)}
    return any(
        isinstance(n, ast.Name)
        and n.id == name
        and isinstance(n.ctx, ast.Load)
        and id(n) not in inside
        and _comes_after(n, call, loops)
        for n in ast.walk(scope)
    )


def _comes_after(node: ast.AST, call: ast.Call, loops: Sequence[ast.AST]) -> bool:
    """Whether a place may run after a call: below it, or in a loop around it."""
    position = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return position > (call.lineno, call.col_offset) or any(node in ast.walk(loop) for loop in loops)


def _names_in(buffer: ast.expr) -> Iterator[str]:
    """The variables and attributes of self whose values are put into the buffer."""
    functions = {id(n.func) for n in ast.walk(buffer) if isinstance(n, ast.Call)}
    for node in ast.walk(buffer):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in functions:
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and id(node) not in functions
        ):
            yield f"self.{node.attr}"


def _is_used_after(scope: ast.AST, name: str, call: ast.Call, loops: Sequence[ast.AST]) -> bool:
    """Whether the ranks go on with a value that was sent. An attribute of the object is there for other methods."""
    if name == "self":
        return False
    if name.startswith("self."):
        return True
    inside = {id(n) for n in ast.walk(call)}
    after = [
        n
        for n in ast.walk(scope)
        if isinstance(n, ast.Name) and n.id == name and _comes_after(n, call, loops) and id(n) not in inside
    ]
    after.sort(key=lambda n: (n.lineno, n.col_offset))
    return bool(after) and any(isinstance(n.ctx, ast.Load) for n in after) and not isinstance(after[0].ctx, ast.Store)
