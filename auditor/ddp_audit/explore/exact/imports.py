"""Import statements in an interpreted run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.explore.exact import described
from ddp_audit.explore.exact.values import MISSING, Lib, Scope, Unknown
from ddp_audit.program.lookup import canonical

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


def bind(it: Interpreter, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    """Bind the names of an import statement, after the modules of the project that it loads."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            source = it.project.resolve_import(alias.name, 0, scope.source)
            if source is not None and (alias.asname or "." not in alias.name):
                scope.variables[alias.asname or alias.name] = it.load(source, alias.name)
            elif alias.asname:
                scope.variables[alias.asname] = Lib(canonical(alias.name))
            elif source is not None:
                _bind_parts(it, alias.name.split("."), scope)
            else:
                scope.variables.setdefault(alias.name.split(".")[0], Lib(alias.name.split(".")[0]))
        return
    base = node.module or ""
    source = it.project.resolve_import(base, node.level, scope.source) if base or node.level else None
    for alias in node.names:
        full = f"{base}.{alias.name}" if base else alias.name
        if alias.name == "*":
            if source is not None:
                loaded = it.load(source, base)
                scope.variables.update({k: v for k, v in loaded.variables.items() if not k.startswith("_")})
            continue
        name = alias.asname or alias.name
        if source is not None:
            found = it.load(source, base).variables.get(alias.name, MISSING)
            if found is not MISSING:
                scope.variables[name] = found
                continue
        inner = it.project.resolve_import(full, node.level, scope.source)
        if inner is not None and inner is not source:
            scope.variables[name] = it.load(inner, full)
        elif source is not None or node.level:
            scope.variables[name] = Unknown(full)  # a part of the project that is not there, which may send
        else:
            scope.variables[name] = described.value(it, Lib(canonical(full)))


def _bind_parts(it: Interpreter, names: list[str], scope: Scope) -> None:
    """`import a.b.c`: each part is loaded and is an attribute of the one before; the name of the first is bound."""
    holder = scope
    for count, name in enumerate(names, 1):
        full = ".".join(names[:count])
        source = it.project.resolve_import(full, 0, scope.source)
        if source is not None:
            made = it.load(source, full)
        else:  # a folder without an __init__.py
            made = it.modules.setdefault(f"package {full}", Scope({"__name__": full}, scope.source))
        holder.variables[name] = made
        holder = made
