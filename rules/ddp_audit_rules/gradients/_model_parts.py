"""Which parts of a wrapped model its forward uses, and under which conditions: shared by the rules on the shape of the graph."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.tree.nodes import Checkpoint, Inside, ModuleUse, Program, RequiresGrad, Wrap
from ddp_audit.tree.questions import is_kind, unwrapped
from ddp_audit.tree.values import Const, Key, Obj
from ddp_audit_rules.facts.training import trained_after


def looked_into(program: Program) -> Iterator[tuple[Wrap, Obj, Obj, Inside]]:
    """The wrappers that are trained and whose forward was followed: the wrap, the wrapper, the module, and its inside."""
    for wrap in program.of(Wrap):
        wrapper = wrap.object
        inside = program.inside.get(wrapper.key) if wrapper is not None else None
        module = unwrapped(wrapper) if wrapper is not None else None
        if wrapper is not None and inside is not None and module is not None and trained_after(program, wrapper, wrap) is not None:
            yield wrap, wrapper, module, inside


def uses(program: Program, inside: Inside) -> dict[Key, list[ModuleUse]]:
    """Where each module or parameter is used. A module whose forward was not followed uses all that is in it."""
    found: dict[Key, list[ModuleUse]] = {}
    for node in inside.nodes:
        if not isinstance(node, ModuleUse) or node.object is None:
            continue
        key = node.object.key
        whole = node.whole or key not in inside.followed
        for part in program.modules.inside(key) if whole else (key,):
            found.setdefault(part, []).append(node)
    return found


def leaves(program: Program, module: Obj) -> list[Obj]:
    """The layers and parameters inside a model that have nothing inside them, and have parameters."""
    modules = program.modules
    keys = [key for key in modules.inside(module.key) if not modules.children.get(key) and key in modules.objects]
    found = [modules.objects[key] for key in keys if modules.has_parameters(key) and key != module.key]
    return sorted(found, key=lambda leaf: (leaf.made.path, leaf.made.line, leaf.made.column) if leaf.made else ("", 0, 0))


def frozen(program: Program, leaf: Obj) -> bool:
    """Whether a layer, or a module around it, is switched off somewhere."""
    for node in program.of(RequiresGrad):
        value = node.value
        if isinstance(value, Const) and value.value is True:
            continue
        module = unwrapped(node.object) if node.object is not None else None
        if module is not None and leaf.key in program.modules.inside(module.key):
            return True
    return False


def recomputed(program: Program, node: Checkpoint) -> set[Key]:
    """The layers with parameters that a checkpoint recomputes."""
    keys: set[Key] = set()
    for key in node.modules:
        keys |= program.modules.inside(key)
    children = program.modules.children
    return {key for key in keys if not children.get(key) and program.modules.has_parameters(key)}


def listed(program: Program) -> set[Key]:
    """Layers that stand for any of a list: two uses of them need not be of one."""
    found: set[Key] = set()
    for key, module in program.modules.objects.items():
        if is_kind(module, "holds-modules"):
            found |= program.modules.inside(key)
    return found
