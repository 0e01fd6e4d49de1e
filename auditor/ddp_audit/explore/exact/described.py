"""Calls and values of libraries that the user describes (knowledge/stubs.py), in an interpreted run."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, definitions, expressions
from ddp_audit.explore.exact.contents import is_local
from ddp_audit.explore.exact.values import Class, Function, Lib, Native, Scope, Unknown
from ddp_audit.knowledge.stubs import Stub, libraries_in, located
from ddp_audit.program.lookup import canonical

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


@dataclass(slots=True, eq=False)
class Thing(Unknown):
    """What a call of something described gives: of an object's methods those are known that are described too."""

    name: str = ""


def attribute(it: Interpreter, owner: Thing, name: str) -> Any:
    """A method, or an attribute that is not known."""
    full = f"{owner.name}.{name}"
    return Lib(full) if full in it.stubs else Unknown(name, owner.local, quiet=True)


def stub_of(it: Interpreter, function: Any) -> Stub | None:
    """The description of what is called or used as a decorator."""
    match function:
        case Lib(name=name):
            return it.stubs.get(name)
        case Function(owner=None, name=name, scope=Scope(source=source)) | Class(name=name, source=source):
            return it.stubs.get(f"{source.module}.{name}")
    return None


def call(it: Interpreter, stub: Stub, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a call gives, after its effects."""
    local = bool(stub.adds) or is_local(*args, *kwargs.values())
    other = Thing(stub.name.rpartition(".")[2], local, quiet=True, name=stub.name)
    it.tick()
    if stub.name in it.describing:
        return other
    source = it.frames[-1].source
    scope = calls.scope_of(it, definitions.define(it, stub.signature, Scope({}, source), None), args, kwargs, None)
    result: Any = other
    it.describing.append(stub.name)
    try:
        for expression in stub.like:
            result = _evaluated(it, stub, expression, scope)
    finally:
        it.describing.pop()
    match stub.gives:
        case "":
            return result
        case "none":
            return None
        case "uniform":
            return Unknown(other.why, quiet=True)
        case "unknown":
            return other
    return scope.variables.get(stub.gives, other)


def value(it: Interpreter, thing: Lib) -> Any:
    """What a name of a library stands for where it is read."""
    stub = it.stubs.get(thing.name)
    if stub is None or stub.value is None or stub.name in it.describing or not it.frames:
        return thing
    scope = Scope({}, it.frames[-1].source)
    it.describing.append(stub.name)
    try:
        return _evaluated(it, stub, stub.value, scope)
    finally:
        it.describing.pop()


def decorated(it: Interpreter, stub: Stub, function: Any) -> Any:
    """A function under a described decorator: one for the main process does nothing on the others."""
    return Native(lambda *args, **kwargs: None) if stub.main_process and it.rank != 0 else function


def _evaluated(it: Interpreter, stub: Stub, expression: ast.expr, scope: Scope) -> Any:
    """What an expression of a description gives, with what it does at the line that calls it."""
    for library in libraries_in(expression, stub.parameters):
        scope.variables[library] = Lib(canonical(library))
    frame = it.frames[-1]
    first, last = frame.line, max(frame.line, frame.end)
    found = expressions.evaluate(it, _at_lines(expression, first, last), scope)
    frame.line, frame.end = first, last
    return found


@functools.lru_cache(maxsize=1024)
def _at_lines(expression: ast.expr, first: int, last: int) -> ast.expr:
    return located(expression, ast.Pass(lineno=first, end_lineno=last, col_offset=0, end_col_offset=0))
