"""Names and attributes: what they stand for where they are read, and what their assignment means."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program import class_questions, functions, imports, names, presence, sides
from ddp_audit.program.changes import note_assignment, note_cleared, note_write, set_requires_grad
from ddp_audit.program.nodes import ForcedDevice, MissingAttribute, SyncFlag
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo
from ddp_audit.program.uses import note_use
from ddp_audit.program.values import (
    DATA,
    RANDOM,
    RANK,
    Bound,
    Const,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    World,
    defaults_in,
    named,
    options,
    the_object,
)
from ddp_audit.program.values import evaluate as compute

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def name(lw: Lowering, node: ast.Name) -> Value:
    """A variable: of the running function, of the functions around it, of its module, or a builtin."""
    frame: Frame | None = lw.here
    while frame is not None:
        value = lw.state.get((frame.id, node.id))
        if value is not None:
            if (frame.id, node.id) in lw.bindings:
                presence.read(lw, (frame.id, node.id), node)
            return _by_name_if_unknown(imports.force(lw, value), node.id)
        frame = frame.parent
    value = lw.state.get((lw.here.top.id, node.id))
    if value is not None:
        return _by_name_if_unknown(imports.force(lw, value), node.id)
    starred = imports.from_stars(lw, lw.here.top, node.id)
    if starred is not None:
        return starred
    guess = names.by_name(node.id)
    return guess if guess is not None else Ext(name=f"builtins.{node.id}", text=node.id)


def _by_name_if_unknown(value: Value, text: str) -> Value:
    if isinstance(value, Unknown) and not value.taint and not value.deps:
        guess = names.by_name(text)
        if guess is not None:
            return guess
    return value if value.text or isinstance(value, Const) else named(value, text)


def attribute(lw: Lowering, owner: Value, attr: str, node: ast.AST) -> Value:
    """`owner.attr`."""
    if isinstance(owner, Ext):
        return Ext(name=canonical(f"{owner.name}.{attr}"), text=attr)
    named = class_questions.name_of_class(owner, attr)
    if named is not None:
        return named
    presence.read_of_none(lw, owner, attr, node)
    of_both = sides.attribute_of_both(owner, attr, lambda target: object_attribute(lw, target, attr, node))
    if of_both is not None:
        return of_both
    target = the_object(owner, "ddp") or the_object(owner)
    if target is None:
        held = _held_by_unknown(lw, owner, attr, node)
        if held is not None:
            return held
        for option in options(owner):
            if isinstance(option, (Ext, Func)):
                return attribute(lw, option, attr, node) if isinstance(option, Ext) else Unknown(text=attr)
        guess = names.by_name(attr)
        if guess is not None and not isinstance(owner, Const):
            return guess
        text = f"{owner.text}.{attr}" if owner.text else attr
        if attr == "type" and owner.text.split(".")[-1].endswith("device"):
            return Unknown(text=text)
        if is_kind(attr, "facts-of-tensor"):
            return Unknown(taint=owner.taint - {DATA, RANDOM}, text=text)
        if lw.overrides and isinstance(node, ast.expr) and isinstance(owner, (Unknown, Bound)) and not owner.deps:
            from ddp_audit.program.contracts_config import loaded

            known = loaded(lw, attr, node)
            if known is not None:
                return known
        return Bound(receiver=owner, name=attr, taint=owner.taint, deps=owner.deps, text=text)
    asked = class_of(lw, owner, lw.text(node)) if attr == "__class__" else None
    if asked is not None:
        return asked
    if target.kind == "ddp":
        sure = all(isinstance(option, Obj) and option.kind == "ddp" for option in options(owner))
        return _wrapper_attribute(lw, target, attr, node, sure)
    return object_attribute(lw, target, attr, node, owner)


def object_attribute(lw: Lowering, target: Obj, attr: str, node: ast.AST, owner: Value | None = None) -> Value:
    """An attribute of an object: its slot, a method or a property of its class, an option of a namespace, or nothing known."""
    if target.kind == "python-module":
        return imports.module_attribute(lw, target, attr)
    if attr == "_orig_mod" and target.compiled is not None:
        return replace(target, compiled=None)
    slot = lw.state.get((target.key, attr))
    if slot is not None:
        if (target.key, attr) in lw.bindings:
            presence.read(lw, (target.key, attr), node, target)
        if lw.looking is not None:
            lw.looking.asked.add(attr)
            note_use(lw, node, slot)
        return _by_name_if_unknown(slot, attr)
    info = target.cls
    if isinstance(info, ClassInfo):
        found = info.find(attr)
        if found is not None:
            holder, method = found
            function = FunctionInfo(attr, method, holder.frame, holder)
            here = lw.here.receiver
            target = here if here is not None and here.key == target.key else target  # of super(), its methods see the whole object
            ways = [full_name(lw, holder.frame, d.func if isinstance(d, ast.Call) else d) for d in method.decorator_list]
            if any(is_kind(way, "property") for way in ways):
                return functions.call_function(lw, function, [], {}, node, receiver=target)
            if any(is_kind(way, "static-method") for way in ways):
                return Func(definition=function, text=attr)
            return Func(definition=function, receiver=target, text=attr)
        value = class_attribute(lw, info, attr)
        if value is not None:
            return value
    if lw.looking is not None and target.kind == "module":
        lw.looking.asked.add(attr)
    guess = names.by_name(attr)
    # The `rank` of a module may be that of a matrix.
    if guess is not None and (target.kind in ("namespace", "instance", "parser") or (target.kind == "module" and attr != "rank")):
        return guess
    text = f"{target.text}.{attr}" if target.text else attr
    return Bound(receiver=owner if owner is not None else target, name=attr, taint=target.taint, text=text)


def class_of(lw: Lowering, subject: Value, text: str) -> Value | None:
    """`type(subject)` where it says something; a wrapper of a class of the project's own says nothing."""
    own = isinstance(subject, Obj) and lw.state.get((subject.key, "__class__")) is not None
    return None if own else class_questions.class_of(subject, text)


def class_attribute(lw: Lowering, info: ClassInfo, attr: str) -> Value | None:
    """A class variable, here or in a base of the project."""
    values = (lw.state.get((("class", cls.frame.source.path, cls.name), attr)) for cls in info.lineage())
    return next((value for value in values if value is not None), None)


def _wrapper_attribute(lw: Lowering, wrapper: Obj, attr: str, node: ast.AST, sure: bool) -> Value:
    if attr == "_orig_mod" and wrapper.compiled is not None:
        return replace(wrapper, compiled=None)
    if attr == "module":
        inner: Value = wrapper.info
        return inner
    slot = lw.state.get((wrapper.key, attr))
    if slot is not None:
        return slot
    subclass = the_object(lw.state.get((wrapper.key, "__class__")), "class")
    if subclass is not None and isinstance(subclass.cls, ClassInfo):
        found = subclass.cls.find(attr)
        if found is not None:
            return Func(definition=FunctionInfo(attr, found[1], found[0].frame, found[0]), receiver=wrapper, text=attr)
        if subclass.cls.find("__getattr__") is not None:
            return Bound(receiver=wrapper, name=attr, text=f"{wrapper.text}.{attr}")
    if not is_kind(attr, "of-wrapper", "of-module") and not attr.startswith("_"):
        lw.emit(node, MissingAttribute(target=wrapper, name=attr, sure=sure))
    return Bound(receiver=wrapper, name=attr, text=f"{wrapper.text}.{attr}")


def _is_of_project(owner: Value) -> bool:
    """Whether a value is an object of a class that has no base outside of the project, so that no attribute of it is torch's."""
    target = the_object(owner)
    return target is not None and target.kind == "instance" and isinstance(target.cls, ClassInfo) and not target.cls.outside_bases()


def assign_attribute(lw: Lowering, node: ast.Attribute, owner: Value, attr: str, value: Value) -> None:
    """`owner.attr = value`."""
    lw.effects += 1
    if attr == "require_backward_grad_sync" and not _is_of_project(owner):
        lw.emit(node, SyncFlag(target=owner, value=value))
    elif attr == "requires_grad":
        set_requires_grad(lw, node, owner, value)
    elif attr == "data":
        note_write(lw, node, owner)
    elif attr == "grad" and isinstance(value, Const) and value.value is None:
        note_cleared(lw, node, owner)
    both = sides.both_objects(owner)
    if both is not None:
        for polarity, one in ((True, both[1]), (False, both[2])):
            assign_attribute(lw, node, one, attr, sides.on_this_side(value, both[0], polarity))
        return
    target = the_object(owner, "ddp") or the_object(owner)
    if target is None:
        _hold_by_unknown(lw, owner, attr, node, value)
        return
    if target.kind == "python-module":
        frame: Frame = target.info
        lw.state[(frame.id, attr)] = value
        return
    note_forced_device(lw, node, lw.state.get((target.key, attr)), value)
    if target.kind in ("module", "ddp"):
        note_assignment(lw, node, target, attr, lw.state.get((target.key, attr)), value)
    kept = value if isinstance(value, Const) else named(value, f"{target.text or 'self'}.{attr}")
    presence.bound(lw, (target.key, attr))
    lw.state[(target.key, attr)] = kept
    if the_object(value, "ddp") is not None:
        lw.holders.add(target.key)
        lw.program.modules.note_wrapper(target.key, value)
    for option in options(value):
        adopt(lw, target, option)
        if isinstance(option, Obj) and option.kind == "module":
            lw.program.modules.names.setdefault(option.key, attr)


def _hold_by_unknown(lw: Lowering, owner: Value, attr: str, node: ast.Attribute, value: Value) -> None:
    """Keeps what is given to an attribute of something that is not known, where it differs by rank: `args.saves = rank == 0`."""
    place = _place_of_unknown(lw, owner, node)
    if place is not None and (RANK in value.taint or lw.state.get((place, attr)) is not None):
        lw.kept[place] = owner  # so that no other gets its number
        lw.state[(place, attr)] = named(value, f"{owner.text}.{attr}" if owner.text else attr)


def _held_by_unknown(lw: Lowering, owner: Value, attr: str, node: ast.AST) -> Value | None:
    place = _place_of_unknown(lw, owner, node) if isinstance(node, ast.Attribute) else None
    return None if place is None else lw.state.get((place, attr))


def _place_of_unknown(lw: Lowering, owner: Value, node: ast.Attribute) -> tuple[Any, ...] | None:
    """What tells an unknown object from others: the call that gave it, wherever it is handed to, else its variable."""
    match owner, node.value:
        case Unknown(by=Made() as by), _:
            return ("given by", id(by))
        case Unknown(), ast.Name(id=name):
            return ("held in", lw.here.id, name)
    return None


def note_forced_device(lw: Lowering, node: ast.expr, old: Value | None, value: Value) -> None:
    """Notes an assignment that replaces an option which names a device, or the CPU, by the CUDA device of the process."""
    if not isinstance(old, Const) or not isinstance(old.value, str) or RANK not in value.taint:
        return
    if old.default is None and old.value != "cpu":
        return
    if old.default is not None and any(default.name == old.default.name for default in defaults_in(value)):
        return  # it says which device of the kind that the option names
    chosen = compute(value, World(0, 2, 2))
    if isinstance(chosen, str) and chosen.startswith("cuda"):
        lw.emit(node, ForcedDevice(old=old, value=value))


def forget_child(lw: Lowering, owner: Value, attr: str) -> None:
    """`del owner.attr`: a module that is taken out of another."""
    target = the_object(owner, "module")
    child = None if target is None else the_object(lw.state.get((target.key, attr)), "module")
    if target is not None and child is not None:
        lw.children.get(target.key, set()).discard(child.key)
        del lw.state[(target.key, attr)]


def adopt(lw: Lowering, parent: Obj, value: Value) -> None:
    """Notes that module objects in `value` are inside the module `parent`."""
    if parent.kind not in ("module", "instance"):
        return
    for option in options(value):
        if isinstance(option, Obj) and option.kind == "module":
            lw.children.setdefault(parent.key, set()).add(option.key)
        elif isinstance(option, Items):
            for inner in option.items:
                adopt(lw, parent, inner)


def canonical(full_name: str) -> str:
    """One name for a thing that a library offers under several."""
    for long, short in _ALIASES:
        if full_name.startswith(long):
            return short + full_name[len(long) :]
    return full_name


_ALIASES = (
    ("torch.distributed.distributed_c10d.", "torch.distributed."),
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.optim.adamw.", "torch.optim."),
    ("torch.optim.lr_scheduler.", "torch.lr_scheduler."),
    ("torch.autograd.grad_mode.", "torch."),
)


def full_name(lw: Lowering, frame: Frame, node: ast.expr) -> str:
    """The library name that a dotted name stands for in a module, empty where it is none."""
    if isinstance(node, ast.Attribute):
        owner = full_name(lw, frame, node.value)
        return canonical(f"{owner}.{node.attr}") if owner else ""
    if not isinstance(node, ast.Name):
        return ""
    keys = ((frame.id, node.id), (frame.top.id, node.id))
    value = next((found for slots in (lw.state, lw.root) for key in keys if (found := slots.get(key)) is not None), None)
    if value is None:
        return f"builtins.{node.id}" if node.id in _BUILTINS else ""
    return value.name if isinstance(value, Ext) else ""


_BUILTINS = frozenset(dir(builtins)) | {"exit", "quit"}
