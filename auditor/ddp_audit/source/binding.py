"""How the source of a framework is recognised in a tree, as in a clone with its examples: by a name that its package binds.

The contracts know what a framework's calls mean; reading its source instead takes long, and is wrong where that source asks the
machine. A package of the user's own with such a name is read as any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def binds(text: str, name: str) -> bool:
    """Return whether a module's text imports, defines or assigns a name, or lists it in a string, as lazy packages do."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return name in _names(tree)


def _names(tree: ast.Module) -> Iterator[object]:
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Constant):
            yield node.value
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
