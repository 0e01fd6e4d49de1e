"""Values that are shown as text: an object of a class of the project makes its text itself, by `__str__` and its like."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddp_audit.program.functions import call_function
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.values import Obj, Value

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_TEXTS = ("__format__", "__str__", "__repr__")  # each falls back on the next


def show(lw: Lowering, node: ast.AST, values: Iterable[Value]) -> None:
    """Follow what makes the texts of some values."""
    for value in values:
        if isinstance(value, Obj) and isinstance(value.cls, ClassInfo) and value.kind != "class":
            found = next(filter(None, map(value.cls.find, _TEXTS)), None)
            if found is not None:
                holder, method = found
                call_function(lw, FunctionInfo(method.name, method, holder.frame, holder), [], {}, node, receiver=value)
