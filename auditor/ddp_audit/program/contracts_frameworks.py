"""What methods of training frameworks mean that are collective though they look local: Accelerate, Lightning and its Fabric."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING

from ddp_audit.program import contracts_reports
from ddp_audit.program.contracts import BY_METHOD, contract, numbered
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.names import called
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import Bound, Const, Obj, Unknown, Value, the_object

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

# Method names that are common elsewhere: collective on an object of a framework only. Its name tells where its value does not.
_OF_ACCELERATOR = {
    "gather": "Accelerator.gather all-gathers",
    "reduce": "Accelerator.reduce all-reduces",
    "pad_across_processes": "Accelerator.pad_across_processes gathers the sizes of all processes",
    "check_trigger": "Accelerator.check_trigger all-reduces the flag",
}
_OF_FABRIC = {
    "barrier": "Fabric.barrier waits for all processes",
    "all_gather": "Fabric.all_gather gathers from all processes",
    "all_reduce": "Fabric.all_reduce reduces over all processes",
    "broadcast": "Fabric.broadcast sends from one process to all",
}
_OF_MODULE = {"all_gather": "LightningModule.all_gather gathers from all processes"}
_OF_TRAINER = {"save_checkpoint": "Trainer.save_checkpoint has a barrier and must be called on all processes"}
_OF_STRATEGY = {
    "barrier": "Strategy.barrier waits for all processes",
    "broadcast": "Strategy.broadcast sends from one process to all",
    "reduce": "Strategy.reduce reduces over all processes",
    "all_gather": "Strategy.all_gather gathers from all processes",
}
_OF_METRIC = {"compute": "Metric.compute of torchmetrics gathers the state of all processes"}
_GIVE_ITSELF = ("to", "cuda", "cpu", "eval", "train")  # methods of a metric
_OF_ENGINE = {
    "save_checkpoint": "save_checkpoint of a DeepSpeed engine waits for all processes",
    "save_16bit_model": "save_16bit_model of a DeepSpeed engine gathers the parameters of all processes",
}
_WHOLE_STATE = ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")
_LOGS = ("log", "log_dict")


def _owner(receiver: Value, libraries: Collection[str] = ()) -> dict[str, str]:
    """The collective methods of a receiver, by what it was made by or, where that is not known, by its name."""
    receiver = _before_move(receiver)
    made = operation_of(receiver).split("(")[0]
    target = the_object(receiver)
    name = receiver.text.split("(")[0].rsplit(".", 1)[-1].lower()
    if made.startswith("torchmetrics."):
        return {} if _syncs_not(receiver) else _OF_METRIC
    if made.startswith("deepspeed.") or (name.endswith("engine") and target is None and "deepspeed" in libraries):
        return _OF_ENGINE
    if made.endswith(".Accelerator") or (name == "accelerator" and target is None):
        return _OF_ACCELERATOR
    if made.endswith(".Fabric") or (name == "fabric" and target is None):
        return _OF_FABRIC
    if is_lightning(target):
        return _OF_MODULE
    if name == "strategy" and target is None:
        return _OF_STRATEGY
    if made.startswith(("lightning.", "pytorch_lightning.")) or (name == "trainer" and is_lightning(_holder(receiver))):
        return _OF_TRAINER
    return {}


def _before_move(value: Value) -> Value:
    """A metric or engine as it was made, where it was moved since: `Accuracy(..).to(device)` is the same object."""
    while isinstance(value, Unknown) and value.by is not None and value.by.name in _GIVE_ITSELF and value.by.args:
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


def is_lightning(target: Obj | None) -> bool:
    """Whether an object is of a project class that derives from LightningModule."""
    return target is not None and isinstance(target.cls, ClassInfo) and any(
        base.endswith("LightningModule") for base in target.cls.outside_bases()
    )  # fmt: skip


def _holder(receiver: Value) -> Obj | None:
    """The object whose attribute a value is, as far as the value remembers it."""
    return the_object(receiver.receiver) if isinstance(receiver, Bound) else None


def _collective(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    what = _owner(bound.receiver, {name.split(".")[0] for name in lw.libraries}).get(bound.name)
    if what is None:
        return None
    lw.emit("collective", node, target=args[0] if args else None, args=kwargs, op=bound.name, hidden=True, what=what)
    deps = args[0].deps if args else frozenset()
    return Unknown(deps=deps, text=lw.text(node))


def _log(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`self.log(name, value, sync_dist=True)` reduces the value over all processes, at once or at the end of the epoch."""
    flag = kwargs.get("sync_dist")
    if not is_lightning(the_object(bound.receiver)):
        return contracts_reports.method(lw, node, bound, args, kwargs)
    if not isinstance(flag, Const) or not flag.value:
        return None
    what = f"self.{bound.name} with sync_dist=True reduces the value over all processes"
    lw.emit("collective", node, target=args[0] if args else None, op=bound.name, hidden=True, what=what)
    return Const(value=None)


def _prepare(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`accelerator.prepare(model, loader)` and `fabric.setup_dataloaders(loader)` share out what the loaders give."""
    owner = _owner(bound.receiver)
    framework = "accelerate" if owner is _OF_ACCELERATOR else "fabric" if owner is _OF_FABRIC else ""
    if framework:
        lw.emit("prepare", node, target=bound.receiver, args=numbered(args, kwargs), framework=framework)
    return None


@contract(*(f"torch.distributed.checkpoint.state_dict.{name}" for name in _WHOLE_STATE))
def _whole_state(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The state of a sharded model is gathered; that of any other, a DDP wrapper among them, is the rank's own."""
    name = called(node).rsplit(".", 1)[-1]
    if any("fully_shard" in library or "fsdp" in library.lower() for library in lw.libraries):
        lw.emit("collective", node, args=kwargs, op=name, hidden=True, what=f"{name} gathers the shards of all ranks")
    return Unknown(text=lw.text(node))


BY_METHOD.update(
    dict.fromkeys(("prepare", "prepare_data_loader", "setup_dataloaders"), _prepare)
    | dict.fromkeys(
        {*_OF_ACCELERATOR, *_OF_FABRIC, *_OF_MODULE, *_OF_TRAINER, *_OF_STRATEGY, *_OF_METRIC, *_OF_ENGINE}, _collective
    )
    | dict.fromkeys(_LOGS, _log)
)
