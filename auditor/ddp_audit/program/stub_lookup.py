"""Which description of the user's (knowledge/stubs.py) a function, class, method or decorator has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddp_audit.knowledge.stubs import Stub
from ddp_audit.program.made import operation_of
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.values import Bound, Ext, Func, Obj, Value, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def stub_of(lw: Lowering, function: Value) -> Stub | None:
    """The description of what is called or used as a decorator: a thing of a library, or of the project where one describes it."""
    for option in options(function):
        match option:
            case Ext(name=name):
                full = name
            case Func(definition=FunctionInfo(owner=None, name=name, frame=frame)):
                full = f"{frame.source.module}.{name}"
            case Obj(kind="class", cls=ClassInfo(name=name, frame=frame)):
                full = f"{frame.source.module}.{name}"
            case Bound(receiver=receiver, name=name):
                full = f"{operation_of(receiver)}.{name}"
            case _:
                continue
        if full in lw.hints.stubs:
            return lw.hints.stubs[full]
    return None
