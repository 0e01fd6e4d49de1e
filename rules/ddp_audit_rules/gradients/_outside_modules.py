"""Modules that an optimizer trains and that have parameters outside of all wrappers."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, Collective, Node, OptimizerMade, Program, RequiresGrad, Wrap
from ddp_audit.tree.questions import Owner, forwards_behind, is_new, owners_of, unwrapped
from ddp_audit.tree.values import RANK, ClassInfo, Const, Items, Key, Obj, Unknown, Value


def is_trained(program: Program, wrap: Node) -> bool:
    """Whether something goes back through a wrapper."""
    key = wrap.object.key if wrap.object is not None else None
    return any(
        f.object is not None and f.object.key == key for b in program.of(Backward) for f in forwards_behind(program, b, None)
    )


def outside_modules(program: Program, optimizer: OptimizerMade) -> Iterator[tuple[Obj, Wrap | None]]:
    """The modules of an optimizer that have parameters outside of all wrappers, with the wrap of a part where there is one."""
    owners, _ = owners_of(optimizer.params or Unknown())
    modules = program.modules
    covered: set[Key] = set()
    for key in modules.wrapped:
        covered |= modules.inside(key)
    wrapped_places = {modules.objects[key].made for key in covered if key in modules.objects}
    groups = (one.params for one in program.of(OptimizerMade) if one.params is not None)
    on_purpose = {owner.module.key for value in groups for owner in _set_by_rank(value)}
    for module in dict.fromkeys(unwrapped(o.module) for o in owners):
        if module is None or module.made is None or module.kind != "module" or module.key in covered:
            continue
        if module.key in on_purpose:
            continue
        # The same place may be reached by another way on which it is wrapped.
        if modules.made_by_rank(module.key) or module.made in wrapped_places or not _is_new(program, module):
            continue
        if _is_expert(program, module):
            continue
        inside = modules.inside(module.key)
        rest = {k for k in inside - covered if modules.objects.get(k) is not None and not modules.children.get(k)}
        if any(modules.has_parameters(k) for k in rest):
            parts = [w for w in program.of(Wrap) if _holds(program, module, w)]
            yield module, parts[0] if parts else None


def _set_by_rank(groups: Value) -> Iterator[Owner]:
    """The modules of parameter groups with a setting that depends on the rank: every rank is meant to train its own there."""
    for group in groups.items if isinstance(groups, Items) else ():
        if not isinstance(group, Items) or group.keys is None:
            continue
        named = {key.value: value for key, value in zip(group.keys, group.items, strict=False) if isinstance(key, Const)}
        if any(RANK in value.taint for name, value in named.items() if name != "params"):
            yield from owners_of(named.get("params"))[0]


def _is_expert(program: Program, module: Obj) -> bool:
    """Whether the module around a module exchanges rows between ranks: each rank is meant to have its own for what it gets."""
    around = [program.modules.objects.get(key) for key, children in program.modules.children.items() if module.key in children]
    classes = [found.cls for found in around if found is not None and isinstance(found.cls, ClassInfo)]
    exchanges = [n for n in program.of(Collective) if n.op.startswith("all_to_all")] if classes else []
    return any(_is_in(info, place) for info in classes for node in exchanges for place in (node.span, *node.calls))


def _is_in(info: ClassInfo, place: Span) -> bool:
    """Whether a place is in the body of a class."""
    return place.path == info.frame.source.path and info.node.lineno <= place.line <= (info.node.end_lineno or 0)


def _is_new(program: Program, module: Obj) -> bool:
    """Whether a parameter that stands alone is made of new numbers, and is not a copy of other parameters in another precision."""
    if module.cls != "torch.nn.Parameter":
        return True
    return any(is_new(value) for value in program.modules.arguments.get(module.key, ()))


def _holds(program: Program, module: Obj, wrap: Node) -> bool:
    """Whether a wrapper is an attribute of a module."""
    return wrap.object is not None and wrap.object.key in program.modules.wrappers_in.get(module.key, ())


def is_frozen(program: Program, module: Obj) -> bool:
    """Whether the parameters of a module are switched off and never on."""
    values = [n.value for n in program.of(RequiresGrad) if n.object is not None and n.object.key == module.key and not n.part]
    return bool(values) and all(isinstance(v, Const) and v.value is False for v in values)
