"""Modules whose class was not followed: what parameters and buffers they hold is not known, and neither that they hold none."""

from __future__ import annotations

import ast
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact.values import Class, Function, Module, Unknown
from ddp_audit.machine.module import BufferSpec, ModuleSpec

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_FOLLOWED = ("torch.", "torchvision.")  # classes whose layers are known to have buffers, or none


def mark(module: Any) -> None:
    """Note on the modules inside another one which of them call an attribute of theirs that is not known, as a layer is called."""
    if isinstance(module, Module):
        for _, inner in module.walk():
            if isinstance(inner.cls, Class) and not inner.opaque:
                unknown = {name for name, value in inner.attrs.items() if isinstance(value, Unknown)}
                inner.opaque = bool(unknown) and not unknown.isdisjoint(_called(inner.cls))


def with_buffers(it: Interpreter, module: Any, spec: ModuleSpec) -> ModuleSpec:
    """What DDP sees of a module; where a part of it was not followed, without buffers in that part, which is an assumption."""
    if spec.buffers or not _is_unread(module):
        return spec
    path, line = it.frames[-1].source.path, it.line
    if it.supposes((path, line, "buffers of the wrapped module, whose class is not followed"), "none"):
        return spec
    return replace(spec, buffers=(BufferSpec("*", None, None),), exact=False)


def _is_unread(module: Any) -> bool:
    if not isinstance(module, Module):
        return True
    return any(inner.opaque and not (isinstance(inner.cls, str) and inner.cls.startswith(_FOLLOWED)) for _, inner in module.walk())


def _called(cls: Class) -> set[str]:
    """The attributes of an object that the methods of its class call: `self.encoder(x)`."""
    found: set[str] = set()
    for info in cls.lineage():
        for method in info.namespace.values():
            if isinstance(method, Function):
                found |= _called_by(method.node)
    return found


@functools.lru_cache(maxsize=512)
def _called_by(method: ast.AST) -> frozenset[str]:
    spec = getattr(method, "args", None)
    own = spec.args[0].arg if isinstance(spec, ast.arguments) and spec.args else ""
    calls = (node.func for node in ast.walk(method) if isinstance(node, ast.Call))
    return frozenset(f.attr for f in calls if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == own)
