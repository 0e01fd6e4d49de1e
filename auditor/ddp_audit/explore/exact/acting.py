"""Functions of the project that a library calls at a time that is not known: whether they may send something or leave the run."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from ddp_audit.explore.exact.values import Class, Function, Lib, Method, Native, Unknown
from ddp_audit.knowledge.libraries import may_send

ENDS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort", "os.kill"})
_MOST_CALLS = 60  # that are looked at in a function that a library is given


def may_act(value: Any) -> bool:
    """Whether a function of the project, called by a library at a time that is not known, may send something or leave the run.

    It may where it calls anything but functions of libraries that send nothing, or of the project that do not either. What such a
    library gives it is data, whose methods send nothing.
    """
    return _acts(value, set())


def _acts(value: Any, seen: set[int]) -> bool:
    function = value.function if isinstance(value, Method) else value
    while isinstance(function, Native) and function.inner is not None:
        function = function.inner
    if isinstance(function, Lib):
        return function.name.startswith("torch.distributed") or function.name in ENDS or may_send(function.name)
    if not isinstance(function, Function):
        return True
    if id(function) in seen:
        return False
    seen.add(id(function))
    made = function.scope.source.fact("calls within", function.node, _calls_within)
    return len(made) > _MOST_CALLS or any(_call_acts(node, function, seen) for node in made)


def _calls_within(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def _call_acts(node: ast.Call, function: Function, seen: set[int]) -> bool:
    names: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        names.insert(0, target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return not isinstance(target, (ast.Constant, ast.JoinedStr))
    scope = function.scope
    while scope.parent is not None and target.id not in scope.variables:
        scope = scope.parent
    found = scope.variables.get(target.id)
    if found is None and names and target.id in _parameters(function):
        return False
    if isinstance(found, Unknown):
        return not found.quiet
    if found is None and hasattr(builtins, target.id):
        found = Lib(f"builtins.{target.id}")
    if isinstance(found, Lib):
        full = ".".join((found.name, *names))
        return full.startswith("torch.distributed") or full in ENDS or may_send(full)
    return names != [] or isinstance(found, Class) or _acts(found, seen)


def _parameters(function: Function) -> set[str]:
    """The names of what a function is given, but for its receiver."""
    spec = function.node.args
    given = [*spec.posonlyargs, *spec.args][1 if function.owner is not None and function.kind != "staticmethod" else 0 :]
    return {parameter.arg for parameter in (*given, *spec.kwonlyargs)}
