"""What a decorator of the project asks before it calls the function: found by giving it a function that only notes the way."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.program.model import Guard
from ddp_audit.program.state import FunctionInfo
from ddp_audit.program.values import RANK, Const, Func, Items, Unknown, Value, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_PROBE = ast.parse("def probe(*args, **kwargs): pass").body[0]
assert isinstance(_PROBE, ast.FunctionDef)
PROBE: ast.FunctionDef = _PROBE


def guards_of(lw: Lowering, decorator: Value, node: ast.AST) -> list[Guard]:
    """The conditions on the rank under which a decorator calls what it decorates, placed at a call of the decorated function."""
    if not isinstance(decorator, Func) or not isinstance(decorator.definition, FunctionInfo) or lw.probed is not None:
        return []
    info: FunctionInfo = decorator.definition
    key = (id(info.node), info.frame.id)
    if key not in lw.decorators:
        lw.decorators[key] = _asked(lw, info, node) if _makes_functions(info) and id(info.node) not in lw.active else []
    text, (depth, loops) = f"@{decorator.text.split('.')[-1] or info.name}", (len(lw.calls), len(lw.loops))
    found = lw.decorators[key]
    return [replace(guard, span=lw.span(node), text=text, via="decorator", depth=depth, loops=loops) for guard in found]


def _makes_functions(info: FunctionInfo) -> bool:
    return any(isinstance(inner, ast.FunctionDef) and inner is not info.node for inner in ast.walk(info.node))


def _asked(lw: Lowering, info: FunctionInfo, node: ast.AST) -> list[Guard]:
    """The guards on the rank on the first way to the probe; none where some way to it has none."""
    from ddp_audit.program.functions import call_function

    state, grad, depth = lw.state, lw.grad, len(lw.guards)
    lw.state, lw.probed = state.fork(), []
    lw.muted += 1
    made = call_function(lw, info, [Func(definition=FunctionInfo("probe", PROBE, lw.here))], {}, node)
    for option in options(made):
        if isinstance(option, Func) and isinstance(option.definition, FunctionInfo) and option.definition.node is not PROBE:
            call_function(lw, option.definition, [], {}, node, unknown_arguments=True)
    lw.muted -= 1
    ways = [[guard for guard in way[depth:] if RANK in guard.taint] for way in lw.probed]
    lw.state, lw.grad, lw.probed = state, grad, None
    del lw.guards[depth:]
    return ways[0] if ways and all(ways) else []


def supplies(info: FunctionInfo, parameter: str) -> bool:
    """Whether a test runner gives a parameter its values, as `pytest.mark.parametrize("rank", (1, 4))` does: they are not ranks."""
    for decorator in info.decorators:
        by = decorator.by if isinstance(decorator, Unknown) else None
        if by is None or by.name != "pytest.mark.parametrize" or not by.args:
            continue
        given = by.args[0]
        parts = given.items if isinstance(given, Items) else (given,)
        listed = [name.strip() for part in parts if isinstance(part, Const) for name in str(part.value).split(",")]
        if parameter in listed:
            return True
    return False
