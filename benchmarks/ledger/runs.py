"""The deciding unknowns of a predicted run: conditions that were assumed, loops that were cut, calls that were not followed.

The interpreter is watched from outside: each expression that gives an unknown which no other explains is its first cause.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from ddp_audit.explore.exact import calls, expressions
from ddp_audit.explore.exact.contents import first_unknown
from ddp_audit.explore.exact.interpreter import Interpreter
from ddp_audit.explore.exact.values import (
    Class,
    Function,
    Generating,
    Instance,
    Lib,
    Method,
    Module,
    Native,
    Scope,
    Tensor,
    Unknown,
)

_MOST_TEXT = 60


@dataclass(frozen=True, slots=True)
class Loss:
    """An unknown that decides something: what for (branch, loop, call, end), its first cause, and where each is."""

    what: str
    cause: str
    place: str
    origin: str = ""


@dataclass(slots=True)
class Watch:
    """What was seen of one rank's run."""

    causes: dict[int, tuple[str, str]] = field(default_factory=dict)  # of unknowns, by id(): the cause and its place
    kept: list[Any] = field(default_factory=list)  # so that no id() is used again
    last: dict[int, Any] = field(default_factory=dict)  # what an expression gave last, where that was an unknown, by id()
    losses: dict[tuple[str, str, int], Loss] = field(default_factory=dict)
    called: Any = None  # the unknown that was called last

    def saw(self, it: Interpreter, node: ast.expr, value: Any, scope: Scope) -> None:
        """Notes what an expression gave."""
        if not isinstance(value, Unknown):
            self.last.pop(id(node), None)
            return
        self.last[id(node)] = value
        if value.source is None and id(value) not in self.causes:
            self.kept.append(value)
            self.causes[id(value)] = self._first(node, value) or (_cause(node, value, scope), f"{scope.source.path}:{node.lineno}")

    def _first(self, node: ast.expr, value: Unknown) -> tuple[str, str] | None:
        """The cause of the first part of an expression that was unknown."""
        for part in ast.iter_child_nodes(node):
            inner = part.value if isinstance(part, (ast.keyword, ast.Starred)) else part
            found = self.last.get(id(inner))
            if found is not None and found is not value:
                return self.cause_of(found)
        return None

    def cause_of(self, value: Any) -> tuple[str, str]:
        """The first cause of a value that decides something."""
        if isinstance(value, Tensor):
            return "elements of a tensor", ""
        if isinstance(value, (list, tuple)):
            value = first_unknown(value)
        if not isinstance(value, Unknown):
            return f"a {type(value).__name__} without a known answer", ""
        root = value.source or value
        return self.causes.get(id(root), (f"{root.why or 'unknown'} (made inside the interpreter)", ""))


def _type(value: Any) -> str:
    match value:
        case Lib(name=name):
            return name
        case Instance(cls=Class(name=name)):
            return f"an object of a project class ({name})"[: len("an object of a project class")]
        case Module():
            return "a module"
        case Function() | Method() | Native() | Generating():
            return type(value).__name__.lower()
    return type(value).__name__


def _cause(node: ast.expr, value: Unknown, scope: Scope) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=attr) as function):
            return f"call {_full(function, scope) or '.' + attr}()"
        case ast.Call(func=ast.Name(id=name)):
            found = scope
            while found is not None and name not in found.variables:
                found = found.parent
            target = None if found is None else found.variables[name]
            return f"call {target.name if isinstance(target, Lib) else name if target is None else _type(target)}()"
        case ast.Call():
            return "call of an expression"
        case ast.Attribute(attr=attr):
            return f"attribute {_full(node, scope) or '.' + attr}"
        case ast.Name(id=name):
            if value.why == "an element":
                return "element of what is not known"
            return "parameter or variable without value" if value.why in (name, "") else value.why
        case ast.Subscript():
            return "index: " + (value.why or "[]")
    return f"{type(node).__name__}: {value.why}" if value.why else type(node).__name__


def _full(node: ast.Attribute, scope: Scope) -> str:
    """The full name of something of a library, empty where it is none."""
    names = [node.attr]
    target: ast.expr = node.value
    while isinstance(target, ast.Attribute):
        names.insert(0, target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ""
    found: Scope | None = scope
    while found is not None and target.id not in found.variables:
        found = found.parent
    owner = None if found is None else found.variables[target.id]
    return ".".join([owner.name, *names]) if isinstance(owner, Lib) else ""


@contextmanager
def watched() -> Iterator[dict[int, Watch]]:
    """Watches the ranks that run inside, by the id() of their interpreter."""
    seen: dict[int, Watch] = {}
    kept: list[Interpreter] = []
    evaluate, assume, some, opaque = expressions.evaluate, Interpreter.assume, Interpreter.some, Interpreter.opaque
    call = calls.call

    def of(it: Interpreter) -> Watch:
        if id(it) not in seen:
            seen[id(it)] = Watch()
            kept.append(it)
        return seen[id(it)]

    def place(it: Interpreter, line: int) -> tuple[str, int]:
        return (it.frames[-1].source.path if it.frames else "", line)

    def note(it: Interpreter, what: str, at: tuple[str, int], cause: tuple[str, str]) -> None:
        of(it).losses.setdefault((what, *at), Loss(what, cause[0], f"{at[0]}:{at[1]}", cause[1]))

    def evaluated(it: Interpreter, node: ast.expr, scope: Scope) -> Any:
        value = evaluate(it, node, scope)
        if isinstance(value, Unknown) or id(node) in of(it).last:
            of(it).saw(it, node, value, scope)
        return value

    def assumed(it: Interpreter, node: ast.expr, preferred: bool, value: Any, **named: Any) -> bool:
        note(it, "branch", place(it, node.lineno), of(it).cause_of(value))
        return assume(it, node, preferred, value, **named)

    def of_some(it: Interpreter, element: Any, node: ast.AST | None) -> Iterator[Any]:
        note(it, "loop", place(it, getattr(node, "lineno", it.frames[-1].line if it.frames else 0)), of(it).cause_of(element))
        yield from some(it, element, node)

    def called(it: Interpreter, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        of(it).called = function if isinstance(function, Unknown) else None
        return call(it, function, args, kwargs)

    def not_followed(it: Interpreter, what: str) -> None:
        function = of(it).called
        known = (f"not followed: {what[:_MOST_TEXT]}", "")
        note(it, "call", place(it, it.line), known if function is None else of(it).cause_of(function))
        opaque(it, what)

    with (
        mock.patch.object(expressions, "evaluate", evaluated),
        mock.patch.object(calls, "call", called),
        mock.patch.object(Interpreter, "assume", assumed),
        mock.patch.object(Interpreter, "some", of_some),
        mock.patch.object(Interpreter, "opaque", not_followed),
    ):
        yield seen
