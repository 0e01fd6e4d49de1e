"""Buffers that a module's forward fills with what it computes from its input: found in the text of its class."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.code import calls_of, hints_at, names_in
from ddp_audit.program.model import BufferWrite
from ddp_audit.program.sites import sites_of_modules
from ddp_audit.program.state import ClassInfo

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def buffer_writes(lw: Lowering) -> dict[tuple[object, ...], list[BufferWrite]]:
    """The writes of each module of the project, with those of the modules inside it."""
    return sites_of_modules(lw, _in_class)


def _in_class(info: ClassInfo) -> list[BufferWrite]:
    """Writes in forward and the methods that it calls; none where the class speaks of collectives, which make values equal."""
    source = info.frame.source
    if "forward" not in info.methods or not calls_of(info, "register_buffer"):
        return []
    if hints_at(info, "makes-buffers-equal") or "dist" in names_in(info.node):
        return []
    names = {
        call.args[0].value
        for call in ast.walk(info.node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer" and call.args
        if isinstance(call.args[0], ast.Constant)
    }
    reached, queue = {"forward"}, ["forward"]
    writes: list[BufferWrite] = []
    while queue:
        method = info.methods[queue.pop()]
        local = _from_input(method)
        for node in ast.walk(method):
            called = _of_self(node) if isinstance(node, ast.Attribute) else ""
            if called in info.methods and called not in reached:
                reached.add(called)
                queue.append(called)
            name = _written(node, local)
            if name in names and isinstance(node, (ast.stmt, ast.expr)):
                writes.append(BufferWrite(str(name), source.span(node), info.name, method.name))
    return writes


def _of_self(node: ast.expr) -> str:
    """The attribute of self that an expression is, or is an element, a method or a view of."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr
        node = node.func if isinstance(node, ast.Call) else node.value
    return ""


def _from_input(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The variables of a method that are computed from its parameters."""
    local = {a.arg for a in (*method.args.args, *method.args.kwonlyargs)} - {"self"}
    for _ in range(2):  # a second time for what a loop carries around
        for node in ast.walk(method):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)):
                value = node.iter if isinstance(node, ast.For) else node.value
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if value is not None and _mentions(value, local):
                    local |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name) and n.id != "self"}
    return local


def _mentions(node: ast.expr, local: set[str]) -> bool:
    """Whether an expression uses what is in a variable; its shape, type and length are facts of all ranks alike."""
    if isinstance(node, ast.Attribute) and is_kind(node.attr, "of-form"):
        return False
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if is_kind(name, "size"):
            return False
    if isinstance(node, ast.Name):
        return node.id in local
    return any(_mentions(child, local) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _written(node: ast.AST, local: set[str]) -> str:
    """The attribute of self that a statement or call fills with something computed from the input; empty where it fills none."""
    if isinstance(node, (ast.Assign, ast.AugAssign)) and _mentions(node.value, local):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, (ast.Attribute, ast.Subscript)) and _of_self(target):
                return _of_self(target)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_kind(node.func.attr, "fills-in-place"):
        given = (*node.args, *(k.value for k in node.keywords))
        return _of_self(node.func.value) if any(_mentions(arg, local) for arg in given) else ""
    return ""
