"""What a condition asks of an object of the project: its `__bool__`, else its `__len__`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program.functions import call_function
from ddp_audit.program.operations import operation
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.values import Const, Obj, Value

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_ZERO = Const(value=0)


def asked(lw: Lowering, value: Value, node: ast.expr) -> Value:
    """What bool() gives of a value, where a method of the project says that; any other value as it is."""
    if not isinstance(value, Obj) or value.kind == "class" or not isinstance(value.cls, ClassInfo):
        return value
    for name in ("__bool__", "__len__"):
        found = value.cls.find(name)
        if found is not None:
            info = FunctionInfo(name, found[1], found[0].frame, found[0])
            said = call_function(lw, info, [], {}, node, receiver=value)
            return said if name == "__bool__" else operation(">", said, _ZERO)
    return value
