"""Functions and methods that nothing calls: each lowered by itself, with parameters known by name only."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program import (
    names,
)
from ddp_audit.program.functions import call_function
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo
from ddp_audit.program.values import (
    Func,
    Obj,
)
from ddp_audit.source.files import SourceFile

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def run_leftovers(lw: Lowering, source: SourceFile) -> None:
    """Functions and methods of the entry file that nothing in it calls, each by itself, its parameters known by name."""
    from ddp_audit.program.lowering import LEFTOVER_STEPS

    frame = lw.modules[source.abspath]
    whole, lw.most_steps = lw.most_steps, min(lw.most_steps, lw.steps + LEFTOVER_STEPS)
    for statement in source.tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and id(statement) not in lw.inlined:
            value = lw.state.get((frame.id, statement.name))
            if isinstance(value, Func):
                _leftover(lw, frame, value.definition, None)
        elif isinstance(statement, ast.ClassDef):
            value = lw.state.get((frame.id, statement.name))
            info = value.cls if isinstance(value, Obj) else None
            if isinstance(info, ClassInfo):
                _leftover_methods(lw, frame, info)
    lw.most_steps = whole


def _leftover_methods(lw: Lowering, frame: Frame, info: ClassInfo) -> None:
    receiver: Obj | None = None
    for method in info.methods.values():
        if id(method) in lw.inlined:
            continue
        if receiver is None:
            kind = names.kind_of_class(info)
            receiver = Obj(key=("leftover", info.frame.source.path, info.name), kind=kind, cls=info, text="lw")
            init = info.find("__init__")
            if init is not None and id(init[1]) not in lw.inlined:
                _leftover(lw, frame, FunctionInfo("__init__", init[1], init[0].frame, init[0]), receiver)
            if method.name == "__init__":
                continue
        _leftover(lw, frame, FunctionInfo(method.name, method, info.frame, info), receiver)


def _leftover(lw: Lowering, frame: Frame, info: FunctionInfo, receiver: Obj | None) -> None:
    lw.here, lw.guards, lw.grad = frame, [], True
    call_function(lw, info, [], {}, info.node, receiver=receiver, unknown_arguments=True)
