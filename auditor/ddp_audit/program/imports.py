"""Imports: project files lowered when a name of theirs is first used, libraries by full name."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from ddp_audit.program import lookup, names
from ddp_audit.program.state import Frame
from ddp_audit.program.values import (
    Ext,
    Obj,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering
    from ddp_audit.source.files import SourceFile


def bind_name(lw: Lowering, node: ast.Import | ast.ImportFrom) -> None:
    """An import statement. Project files are lowered when a name of theirs is first used; the rest is a library by full name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            lw.note_library(alias.name)
            if lw.project.finds(alias.name, lw.here.source) and (alias.asname or "." not in alias.name):
                lw.assign_name(alias.asname or alias.name, _lazy(lw, alias.name, 0, None))
            else:
                root = alias.name if alias.asname else alias.name.split(".")[0]
                lw.assign_name(alias.asname or root, Ext(name=lookup.canonical(root), text=alias.asname or root))
        return
    base = node.module or ""
    for alias in node.names:
        inner = f"{base}.{alias.name}" if base else alias.name
        if not node.level:
            lw.note_library(inner)
        if alias.name == "*":
            lw.here.top.stars.append((base, node.level))
        elif node.level or lw.project.finds(base, lw.here.source) or lw.project.finds(inner, lw.here.source):
            lw.assign_name(alias.asname or alias.name, _lazy(lw, base, node.level, alias.name))
        else:
            lw.assign_name(alias.asname or alias.name, Ext(name=lookup.canonical(inner), text=alias.name))


def _lazy(lw: Lowering, module: str, level: int, name: str | None) -> Obj:
    return Obj(key=("lazy", lw.here.source.path, module, level, name), kind="lazy", info=lw.here.source, text=name or module)


def force(lw: Lowering, value: Value) -> Value:
    """The value itself, or what an import that was put off stands for."""
    if not (isinstance(value, Obj) and value.kind == "lazy"):
        return value
    if value.key not in lw.forced:
        _, _, module, level, name = value.key
        lw.forced[value.key] = Unknown(text=value.text)  # a circular import finds nothing
        lw.forced[value.key] = _imported(lw, value.info, module, level, name)
    return lw.forced[value.key]


def _imported(lw: Lowering, importer: SourceFile, base: str, level: int, name: str | None) -> Value:
    source = lw.project.resolve_import(base, level, importer) if base or level else None
    if name is None:
        return Unknown(text=base) if source is None else _module_object(lw, source)
    if source is not None:
        frame = _module_object(lw, source).info
        value = lw.state.get((frame.id, name)) or from_stars(lw, frame, name)
        # `from . import part` in the package itself binds the name that is looked for.
        itself = isinstance(value, Obj) and value.kind == "lazy" and value.key == ("lazy", importer.path, base, level, name)
        if value is not None and not itself:
            return force(lw, value)
    submodule = lw.project.resolve_import(f"{base}.{name}" if base else name, level, importer)
    if submodule is not None and submodule is not source:
        return _module_object(lw, submodule)
    return names.by_name(name) or Unknown(text=name)


def from_stars(lw: Lowering, frame: Frame, name: str) -> Value | None:
    """A name of a module that only its `from .. import *` can have brought, the last one first."""
    if name.startswith("_") or hasattr(builtins, name):
        return None
    stars, frame.stars = frame.stars, []  # a module that imports itself in a circle finds nothing
    found: Value | None = None
    for base, level in reversed(stars):
        source = lw.project.resolve_import(base, level, frame.source)
        if source is not None:
            inner = lw.run_module(source, main=False)
            value = lw.state.get((inner.id, name))
            found = force(lw, value) if value is not None else from_stars(lw, inner, name)
            if found is not None:
                break
    frame.stars = stars
    return found


def _module_object(lw: Lowering, source: Any) -> Obj:
    return module_object(lw.run_module(source, main=False))


def module_object(frame: Frame) -> Obj:
    """A module of the project as a value."""
    return Obj(key=("python-module", frame.source.path), kind="python-module", info=frame, text=frame.source.module)


def module_named(lw: Lowering, name: str) -> Value:
    """The module of a full name: of the project, or of a library."""
    lw.note_library(name)
    source = lw.project.resolve_import(name, 0, lw.here.source)
    return Ext(name=lookup.canonical(name), text=name) if source is None else _module_object(lw, source)


def module_attribute(lw: Lowering, target: Obj, attr: str) -> Value:
    """`module.attr` of a project module: its global, or a submodule."""
    frame: Frame = target.info
    value = lw.state.get((frame.id, attr))
    if value is not None:
        return force(lw, value)
    starred = from_stars(lw, frame, attr)
    if starred is not None:
        return starred
    source = lw.project.resolve_import(f"{frame.source.module}.{attr}", 0, frame.source)
    if source is not None:
        return _module_object(lw, source)
    return names.by_name(attr) or Unknown(text=attr)
