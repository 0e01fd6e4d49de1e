"""What the user tells of a project where its code cannot: names of its own helpers, descriptions of its libraries, and its torch.

A name is compared with the last part of what is called, read or used as a decorator, or with the whole of it where it has dots.
A hint comes before what the code says.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddp_audit.knowledge.libraries import since

if TYPE_CHECKING:
    from ddp_audit.knowledge.framework import Framework
    from ddp_audit.knowledge.stubs import Stub


@dataclass(frozen=True, slots=True)
class ProjectHints:
    """`names` maps a helper's name to rank, local-rank, world-size, main-process, wrap or barrier; `torch` is (major, minor).

    `stubs` are the descriptions of libraries by full name, and `frameworks` those of training frameworks.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    torch: tuple[int, int] | None = None
    stubs: Mapping[str, Stub] = field(default_factory=dict)
    frameworks: tuple[Framework, ...] = ()


def kind_of(hints: ProjectHints, node: ast.expr) -> str:
    """What a name, an attribute or a decorator is by the hints; empty without one."""
    expression = node.func if isinstance(node, ast.Call) else node
    if isinstance(expression, ast.Name):
        return hints.names.get(expression.id, "")
    if isinstance(expression, ast.Attribute):
        return hints.names.get(expression.attr, "") or hints.names.get(ast.unparse(expression), "")
    return ""


def has_name(hints: ProjectHints, name: str) -> bool | None:
    """Whether the torch that was named has a name; None where that is not known."""
    first = since(name)
    return None if hints.torch is None or first is None else hints.torch >= first
