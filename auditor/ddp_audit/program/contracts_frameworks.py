"""What methods of training frameworks mean that are collective though they look local, as the files of the frameworks say."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.framework import ObjectKind, frameworks
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program import contracts_reports
from ddp_audit.program.contracts import Contract, Contracts, numbered
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.nodes import Collective, Prepare
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import Bound, Const, Obj, Unknown, Value, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_WHOLE_STATE = ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")


def _owner(lw: Lowering, receiver: Value) -> ObjectKind | None:
    """What kind of a framework's object a receiver is, by what it was made by or, where that is not known, by its name."""
    receiver = _before_move(receiver)
    made = operation_of(receiver).split("(")[0]
    target = the_object(receiver)
    name = receiver.text.split("(")[0].rsplit(".", 1)[-1].lower()
    for framework in frameworks().values():
        for kind in framework.objects:
            if kind.makes(made) or (kind.bases and _is_derived(target, kind)):
                return None if _syncs_not(receiver) else kind
            if not kind.is_named(name):
                continue
            if kind.held_by:
                holder = _holder(receiver)
                if any(_is_derived(holder, other) for other in framework.objects if other.name == kind.held_by):
                    return kind
            elif target is None and (not kind.needs_import or framework.is_imported(lw.libraries)):
                return kind
    return None


def _is_derived(target: Obj | None, kind: ObjectKind) -> bool:
    """Whether an object is of a project class that derives from a class of a framework."""
    return target is not None and isinstance(target.cls, ClassInfo) and kind.is_derived(target.cls.outside_bases())


def _before_move(value: Value) -> Value:
    """A metric or engine as it was made, where it was moved since: `Accuracy(..).to(device)` is the same object."""
    while isinstance(value, Unknown) and value.by is not None and is_kind(value.by.name, "gives-itself") and value.by.args:
        value = value.by.args[0]
    return value


def _syncs_not(metric: Value) -> bool:
    """Whether a metric, or one in a collection, was made with sync_on_compute=False or asks a function whether to."""
    for part in behind(metric):
        named = dict(part.by.named) if isinstance(part, Unknown) and part.by is not None else {}
        flag = named.get("sync_on_compute")
        if "distributed_available_fn" in named or (isinstance(flag, Const) and not flag.value):
            return True
    return False


def _holder(receiver: Value) -> Obj | None:
    """The object whose attribute a value is, as far as the value remembers it."""
    return the_object(receiver.receiver) if isinstance(receiver, Bound) else None


def _collective(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    kind = _owner(lw, bound.receiver)
    what = None if kind is None else kind.collective.get(bound.name)
    sharded = what is None and kind is not None and _may_shard_parameters(lw)
    if sharded and kind is not None:
        what = kind.if_sharded.get(bound.name)
    return None if what is None else _issued(lw, node, bound.name, what, args, kwargs, sharded)


def _function(name: str, what: str) -> Contract:
    """The contract of a framework's function that is collective."""

    def contract(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return _issued(lw, node, name.rsplit(".", 1)[-1], what, args, kwargs)

    return contract


def _issued(
    lw: Lowering, node: ast.Call, op: str, what: str, args: list[Value], kwargs: dict[str, Value], if_sharded: bool = False
) -> Value:
    target = args[0] if args else None
    lw.emit(node, Collective(target=target, args=kwargs, op=op, hidden=True, what=what, if_sharded=if_sharded))
    deps = args[0].deps if args else frozenset()
    return Unknown(deps=deps, text=lw.text(node))


def _may_shard_parameters(lw: Lowering) -> bool:
    """Whether such a framework is used, or another one is given it, as by a plugin that bears its name."""
    told = [library.lower() for library in lw.libraries]
    return any(
        one.is_imported(lw.libraries) or any(package in library for package in one.packages for library in told)
        for one in frameworks().values()
        if "shards_parameters" in one.does
    )


def _shards_parameters(lw: Lowering) -> bool:
    """Whether a framework is used that shards parameters."""
    return any(
        one.is_imported(lw.libraries) for one in frameworks().values() if "shards_parameters" in one.does and one.imports_with
    )


def _log(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`self.log(name, value, sync_dist=True)` reduces the value over all processes, at once or at the end of the epoch."""
    flag = kwargs.get("sync_dist")
    target = the_object(bound.receiver)
    if not any(_is_derived(target, kind) for one in frameworks().values() for kind in one.objects if bound.name in kind.logs):
        return contracts_reports.method(lw, node, bound, args, kwargs)
    if not isinstance(flag, Const) or not flag.value:
        return None
    what = f"self.{bound.name} with sync_dist=True reduces the value over all processes"
    lw.emit(node, Collective(target=args[0] if args else None, op=bound.name, hidden=True, what=what))
    return Const(value=None)


def _prepare(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`accelerator.prepare(model, loader)` and `fabric.setup_dataloaders(loader)` share out what the loaders give."""
    owner = _owner(lw, bound.receiver)
    if owner is not None and bound.name in owner.prepares:
        lw.emit(node, Prepare(target=bound.receiver, args=numbered(args, kwargs), framework=owner.framework))
    return None


@CONTRACTS.of(*(f"torch.distributed.checkpoint.state_dict.{name}" for name in _WHOLE_STATE))
def _whole_state(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The state of a sharded model is gathered; that of any other, a DDP wrapper among them, is the rank's own."""
    name = lw.calling.rpartition(".")[2]
    if _shards_parameters(lw):
        lw.emit(node, Collective(args=kwargs, op=name, hidden=True, what=f"{name} gathers the shards of all ranks"))
    return Unknown(text=lw.text(node))


for _framework in frameworks().values():
    CONTRACTS.names.update({name: _function(name, what) for name, what in _framework.functions.items()})
_KINDS = [kind for framework in frameworks().values() for kind in framework.objects]
CONTRACTS.methods.update(
    dict.fromkeys((name for kind in _KINDS for name in kind.prepares), _prepare)
    | dict.fromkeys((name for kind in _KINDS for name in (*kind.collective, *kind.if_sharded)), _collective)
    | dict.fromkeys((name for kind in _KINDS for name in kind.logs), _log)
)
