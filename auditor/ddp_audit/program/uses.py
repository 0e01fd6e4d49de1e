"""What a look inside a wrapped model notes: the modules and parameters that its forward touches (see `inside.py`)."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.modules import Key
from ddp_audit.program.nodes import ModuleUse
from ddp_audit.program.values import Alt, Items, Obj, Unknown, Value, options, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


@dataclass(slots=True)
class Looking:
    """The state of a look inside: the modules of the project whose forward was followed."""

    followed: set[Key] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)  # attributes of modules that were read


def note_use(lw: Lowering, node: ast.AST, value: Value, whole: bool = False) -> None:
    """Notes during a look inside that a module or parameter is touched; with `whole` all that is inside it."""
    if lw.looking is None or lw.constructor_base is not None:
        return
    for option in options(value):
        if isinstance(option, Obj) and option.kind == "module":
            listed = isinstance(option.cls, str) and is_kind(option.cls, "holds-modules")
            lw.emit(node, ModuleUse(target=option, whole=whole, listed=listed and not whole))
        elif isinstance(option, Items):
            for item in option.items:
                note_use(lw, node, item, whole)


def element_of(lw: Lowering, container: Obj) -> Value:
    """A module of a ModuleList or its like, whichever it is."""
    modules = lw.program.modules
    inner = [modules.objects[key] for key in modules.children.get(container.key, ()) if key in modules.objects]
    return Unknown() if not inner else inner[0] if len(inner) == 1 else Alt(options=tuple(inner[:8]))


def is_container(value: Value) -> Obj | None:
    """A ModuleList, ModuleDict or Sequential."""
    found = the_object(value, "module")
    return found if found is not None and isinstance(found.cls, str) and is_kind(found.cls, "container") else None
