"""What calls of torch mean: process groups and collectives, gradients, modules and optimizers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge import functions
from ddp_audit.knowledge.framework import frameworks
from ddp_audit.knowledge.functions import given
from ddp_audit.knowledge.kinds import kinds
from ddp_audit.knowledge.libraries import has_batchnorm
from ddp_audit.program import async_ops, changes, contracts_random, contracts_schedules, lookup
from ddp_audit.program.contracts import Contract, Contracts, generic, method_made, wrap
from ddp_audit.program.contracts_modules import put, run_by_library
from ddp_audit.program.contracts_reports import note_report
from ddp_audit.program.meaning import says
from ddp_audit.program.model import BufferSite, Guard
from ddp_audit.program.nodes import (
    Backward,
    Clip,
    Collective,
    CurrentDevice,
    DeviceChoice,
    NewGroup,
    OptimizerMade,
    PointToPoint,
    ScalerCall,
    ScheduleStep,
    Step,
    Unscale,
    ZeroGrad,
)
from ddp_audit.program.shared_memory import write_through
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.uses import is_container
from ddp_audit.program.values import (
    UNIFORM,
    Bound,
    Const,
    Expr,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    evaluate,
    is_filled,
    join_taint,
    leaf,
    options,
    the_object,
    uniform,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

# Methods that are collective by contract, whatever object they are called on, though their name does not say so.
_HIDDEN_METHODS = {name: what for one in frameworks().values() for name, what in one.methods.items()}


# ---- collectives


def _collective(name: str) -> Contract:
    op, equal = name.rpartition(".")[2], functions.described()[name].get("equal")
    parameters = functions.parameters(name)

    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        arguments = given(name, args, kwargs)
        issued = lw.emit(node, Collective(target=args[0] if args else None, args=arguments, op=op, what=op))
        written = _keyword(node, parameters[0]) if not node.args else node.args[0]
        if equal is not None and written is not None:
            _make_uniform(lw, written, op, arguments)
        elif op == "reduce" and written is not None and "dst" in arguments:
            _reduce_into(lw, written, arguments)
        if async_ops.is_async(arguments):
            return async_ops.launch(lw, node, op, parameters, issued)
        return Unknown(text=lw.text(node))

    return call


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in node.keywords if k.arg == name), None)


def _make_uniform(lw: Lowering, target: ast.expr, op: str, arguments: dict[str, Value]) -> None:
    """After a collective that leaves one value on all ranks, what it wrote is uniform, whatever variables hold it.

    What all_gather writes was computed by no forward: autograd does not look through it.
    """
    while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr.endswith("_"):
        target = target.func.value  # `all_reduce(x.div_(n))` writes x
    value = lw.eval(target)
    gathered = op.startswith("all_gather") and "object" not in op
    sent = arguments.get("tensor", arguments.get("input_tensor", Unknown()))
    at = (("at", Const(value=lw.span(target))),)

    def change(held: Value) -> Value:
        return Unknown(text=held.text, by=Made(op, (held, sent), at)) if gathered else uniform(held, op)

    if gathered or not isinstance(value, Obj):
        _write(lw, target, value, change, in_lists="object" in op)


def _reduce_into(lw: Lowering, target: ast.expr, arguments: dict[str, Value]) -> None:
    """After a reduce the tensor holds the result on one rank, and on the others nothing of use."""
    value = lw.eval(target)
    named = tuple((name, arguments[name]) for name in ("dst", "group") if name in arguments)

    def change(held: Value) -> Value:
        return Unknown(taint=held.taint, deps=held.deps, text=held.text, by=Made("reduce", (held,), named))

    if not isinstance(value, Obj | Items):
        _write(lw, target, value, change)


def _write(lw: Lowering, target: ast.expr, value: Value, change: Callable[[Value], Value], in_lists: bool = False) -> None:
    """Writes into a tensor, or a list of objects, that an expression stands for."""
    write_through(lw, value, change, in_lists)
    if isinstance(target, (ast.Name, ast.Attribute)):
        lw.assign(target, change(value))


CONTRACTS.names.update({name: _collective(name) for name in functions.named("collective")})


def _point_to_point(name: str) -> Contract:
    op = name.rpartition(".")[2]

    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        arguments = given(name, args, kwargs)
        issued = lw.emit(node, PointToPoint(target=args[0] if args else None, args=arguments, op=op))
        if op in ("isend", "irecv"):
            return async_ops.launch(lw, node, op, ("tensor",), issued)
        return Unknown(text=lw.text(node))

    return call


CONTRACTS.names.update({name: _point_to_point(name) for name in functions.named("message")})


@CONTRACTS.of("torch.distributed.P2POp")
def _operation(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One message of a batch: which function, which buffer, to or from whom."""
    arguments = given("torch.distributed.P2POp", args, kwargs)
    return Obj(key=("p2p-op", lw.span(node)), kind="p2p-op", made=lw.span(node), info=arguments, text=lw.text(node))


@CONTRACTS.of("torch.distributed.new_group", "torch.distributed.split_group", "torch.distributed.new_subgroups")
def _new_group(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = given("torch.distributed.new_group", args, kwargs)
    group = Obj(key=("group", lw.span(node)), kind="group", info=arguments.get("ranks"), text=lw.text(node))
    lw.emit(node, NewGroup(target=group, args=arguments))
    return group


# ---- gradients, modules, optimizers


@CONTRACTS.of("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.set_grad_enabled")
def _grad_mode(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = lw.calling.rpartition(".")[2]
    effect = "enable_grad" if name == "enable_grad" else "no_grad"
    if args and isinstance(args[0], Func):
        return args[0]
    if args and isinstance(args[0], Const) and name != "enable_grad":
        off = bool(args[0].value) if name == "inference_mode" else not args[0].value
        effect = "no_grad" if off else "enable_grad"
    elif args and name == "set_grad_enabled":
        effect = ""
    return Obj(key=("grad", effect), kind="context", info=effect, cls=lw.calling, text=lw.text(node))


@CONTRACTS.of("torch.nn.parallel.DistributedDataParallel")
def _ddp(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return wrap(lw, node, args, kwargs, "ddp")


@CONTRACTS.of("apex.parallel.DistributedDataParallel")
def _other_wrapper(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return wrap(lw, node, args, kwargs, "other")


@CONTRACTS.of("torch.distributed.fsdp.FullyShardedDataParallel")
def _fsdp(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return wrap(lw, node, args, kwargs, "fsdp")


@CONTRACTS.of("torch.nn.DataParallel")
def _data_parallel(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Obj(key=("data-parallel", lw.span(node)), kind="other-wrapper", info=args[0] if args else None, text=lw.text(node))


@CONTRACTS.of("torch.jit.script", "torch.nn.utils.fusion.fuse")
def _same_module(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0] if args else Obj(key=("identity",), kind="context", info="", text=lw.text(node))


@CONTRACTS.of("torch.nn.SyncBatchNorm.convert_sync_batchnorm", "apex.parallel.convert_syncbn_model")
def _converted(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target = the_object(args[0], "module") if args else None
    if target is not None:
        lw.state[(target.key, "__sync_batchnorm__")] = Const(value=True)
    return _same_module(lw, node, args, kwargs)


@CONTRACTS.of("torch.compile")
def _compiled(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The same module or function; of a module another view, whose state has the prefix `_orig_mod.`."""
    value = args[0] if args else kwargs.get("model")
    if value is None:  # a decorator with arguments
        return Obj(key=("identity",), kind="context", info="", text=lw.text(node))
    if isinstance(value, Obj) and value.kind in ("module", "ddp"):
        return replace(value, compiled=Const(value=True))
    return value


def by_prefix(lw: Lowering, node: ast.Call, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Whole families of torch's names: layers, optimizers, samplers, functional collectives."""
    span = lw.span(node)
    key = (name, span, lw.way())
    drawn = changes.by_prefix(lw, node, name, args)
    if drawn is not None:
        return drawn
    if name.startswith("torch.nn.") and name.rsplit(".", 1)[-1][:1].isupper():
        return _layer(lw, node, name, key, args, kwargs)
    if name.startswith(("torchvision.models.", "timm.create_model", "timm.models.")):
        made = Obj(key=key, kind="module", cls=name, made=span, text=lw.text(node))
        lw.program.modules.objects[key] = made
        if has_batchnorm(name):
            _add_buffer(lw, node, made, "running_mean", name)
        return made
    if name.startswith(("torchvision.datasets.", "torchaudio.datasets.")) and name.rsplit(".", 1)[-1][:1].isupper():
        from ddp_audit.program.contracts_data import library_dataset

        return library_dataset(lw, node, name, args, kwargs)
    contracts_random.transform(lw, node, name)
    if name.startswith("torch.optim.") or name.endswith(("Optimizer", ".AdamW", ".Adam", ".SGD", "FusedAdam", "FusedLAMB")):
        arguments = {**dict(zip(("params", "lr"), args, strict=False)), **kwargs}
        made = Obj(key=key, kind="optimizer", cls=name, made=span, info=arguments.get("params"), text=lw.text(node))
        lw.emit(node, OptimizerMade(target=made, params=made.info or Unknown(), lr=arguments.get("lr", Unknown())))
        return made
    if (schedule := contracts_schedules.scheduler(lw, node, name, args, kwargs)) is not None:
        return schedule
    if name.endswith("GradScaler"):
        scaler = Obj(key=key, kind="scaler", cls=name, made=span, text=lw.text(node))
        lw.emit(node, ScalerCall(target=scaler, args=dict(kwargs), what="made"))
        return scaler
    if name.startswith(("torch.distributed.nn.", "torch.distributed._functional_collectives.")):
        lw.emit(node, Collective(target=args[0] if args else None, args=kwargs, op=name.rsplit(".", 1)[-1], what=name))
        values = generic(args, kwargs, name=name)
        return Unknown(deps=values.deps, text=lw.text(node), by=values.by)
    if name.startswith("torch.distributed.checkpoint.") and name.endswith(
        (".save", ".load", ".save_state_dict", ".load_state_dict")
    ):
        lw.emit(node, Collective(args=kwargs, op="checkpoint", hidden=True, what=f"{name} runs collectives on all ranks"))
        return Unknown()
    if name.startswith("mpi4py.") and name.endswith(("Get_rank", "Get_size")):
        return leaf("rank" if name.endswith("rank") else "world_size")
    if name.startswith("mpi4py.") and name.rsplit(".", 1)[-1] in frameworks()["mpi"].runs:
        lw.emit(node, Collective(args=kwargs, op=name.rsplit(".", 1)[-1], hidden=True, what=f"MPI {name.rsplit('.', 1)[-1]}"))
        return Unknown()
    return None


def _layer(lw: Lowering, node: ast.Call, name: str, key: tuple[object, ...], args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = Obj(key=key, kind="module", cls=name, made=lw.span(node), info=given(name, args, kwargs), text=lw.text(node))
    lw.program.modules.objects[made.key] = made
    lw.program.modules.arguments[made.key] = (*args, *kwargs.values())
    last = name.rsplit(".", 1)[-1]
    if last.startswith("BatchNorm") or last == "SyncBatchNorm" or last.startswith("LazyBatchNorm"):
        tracked = kwargs.get("track_running_stats")
        if not (isinstance(tracked, Const) and tracked.value is False):
            _add_buffer(lw, node, made, "running_mean", name)
    for value in (*args, *kwargs.values()):
        lookup.adopt(lw, made, value)
    return made


def _add_buffer(lw: Lowering, node: ast.AST, owner: Obj, name: str, layer: str) -> None:
    base = len(lw.guards) if lw.constructor_base is None else lw.constructor_base
    cls = owner.cls.name if isinstance(owner.cls, ClassInfo) else str(owner.cls)
    sites = lw.own_buffers.setdefault(owner.key, {})
    sites[lw.span(node)] = BufferSite(name, lw.span(node), tuple(lw.guards[base:]), cls, layer)


def _register_buffer(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "module")
    name = args[0] if args else kwargs.get("name")
    tensor = args[1] if len(args) > 1 else kwargs.get("tensor")
    if target is not None and not (isinstance(tensor, Const) and tensor.value is None):
        label = str(name.value) if isinstance(name, Const) else "?"
        _add_buffer(lw, node, target, label, "")
        if isinstance(name, Const) and isinstance(name.value, str):
            lw.state[(target.key, name.value)] = Unknown(text=f"self.{name.value}")
    return Const(value=None)


def _backward(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    loss: Value = bound.receiver
    made = bound.receiver.by if isinstance(bound.receiver, Unknown) else None
    if made is not None and made.name.endswith(".Accelerator") and args:
        lw.emit(node, Backward(target=args[0], args={**kwargs, "engine": bound.receiver}))
        return Const(value=None)
    if not loss.deps and args and (args[0].deps or isinstance(bound.receiver, (Obj, Ext))):
        loss = args[0]
    lw.emit(node, Backward(target=loss, args=kwargs))
    return Const(value=None)


@CONTRACTS.of("torch.autograd.backward")
def _autograd_backward(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = given("torch.autograd.backward", args, kwargs)
    lw.emit(node, Backward(target=arguments.get("tensors"), args=kwargs))
    return Const(value=None)


_STEPS = ("scaler", "optimizer", "scheduler")


def _step(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    async_ops.touch_gradients(lw, node)
    receiver = the_object(bound.receiver)
    kind = receiver.kind if receiver is not None else next((k for k in _STEPS if says(bound.receiver, k)), "")
    if kind == "scaler":
        if args:
            lw.emit(node, Step(target=args[0], args=kwargs, scaler=True))
    elif kind == "optimizer":
        lw.emit(node, Step(target=bound.receiver, args=kwargs))
    elif kind == "scheduler":
        lw.emit(node, ScheduleStep(target=bound.receiver, args=kwargs))
        if args:
            note_report(lw, node, args, kwargs, "scheduler")
    return Const(value=None)


def _detached(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A tensor or number without the graph that it was computed by."""
    text = bound.receiver.text or lw.text(node)
    by = Made(bound.name, (bound.receiver, *args), (*kwargs.items(), ("at", Const(value=lw.span(node)))))
    return Unknown(taint=bound.receiver.taint | bound.taint, text=text, by=by)


def _zero_grad(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    lw.emit(node, ZeroGrad(target=bound.receiver))
    return Const(value=None)


def _unscale(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    lw.emit(node, Unscale(target=args[0] if args else None))
    return Const(value=None)


def _no_sync(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    wrapper = the_object(bound.receiver, "ddp")
    if wrapper is None and the_object(bound.receiver, "other-wrapper") is not None:
        return Obj(key=("nullcontext",), kind="context", info="")  # of FSDP, which asks its switch in the backward
    return Obj(key=("no-sync", lw.span(node)), kind="no-sync", made=lw.span(node), info=(wrapper, None, True), text=lw.text(node))


def _same_object(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    changes.note_move(lw, node, bound, args, kwargs)
    where = args[0] if args else kwargs.get("device")
    if bound.name in ("to", "cuda") and where is not None and "rank" in where.taint:
        lw.emit(node, DeviceChoice(index=where, via=bound.name))
    elif bound.name in ("to", "cuda"):
        note_current_device(lw, node, where, bound.name == "cuda")
    if isinstance(bound.receiver, Obj) or the_object(bound.receiver) is not None:
        return bound.receiver
    deps = bound.receiver.deps | bound.deps
    taint = bound.receiver.taint | (UNIFORM if bound.name in ("to", "cuda") else join_taint(*args))
    return Unknown(taint=taint, deps=deps, text=bound.receiver.text, by=method_made(bound, args, kwargs))


def note_current_device(lw: Lowering, node: ast.Call, where: Value | None, cuda: bool = False) -> None:
    """Notes that something is put on the process's current CUDA device, as `.cuda()` and `cuda` without a number do."""
    if (where is None and cuda) or (where is not None and _may_be_current(lw, where)):
        lw.emit(node, CurrentDevice())


def _may_be_current(lw: Lowering, where: Value) -> bool:
    """Whether a device may be `cuda` without a number, also where it is the CPU on machines without one."""
    for option in options(where):
        if isinstance(option, Expr) and option.op == "device" and len(option.args) == 1:
            return _may_be_current(lw, option.args[0])
        if evaluate(option, lw.worlds[0]) == "cuda":
            return True
    return False


def _hidden(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    lw.emit(node, Collective(target=bound.receiver, args=kwargs, op=bound.name, hidden=True, what=_HIDDEN_METHODS[bound.name]))
    return Unknown(text=lw.text(node))


def _explicit_forward(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`wrapper.forward(x)`: what DDP does, it does in forward, so this is a forward through the wrapper."""
    from ddp_audit.program.calls import call_object

    wrapper = the_object(bound.receiver, "ddp")
    if wrapper is None:
        return run_by_library(lw, node, bound, args, kwargs)
    return call_object(lw, node, wrapper, args, kwargs)


def _clip(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    lw.emit(node, Clip(target=args[0] if args else None))
    return Unknown(text=lw.text(node), by=Made("clip", tuple(args), tuple(kwargs.items())))


def _clip_method(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`model.clip_grad_norm_(limit)`, as FSDP and engines have it: the norm of all ranks' gradients, the same on each."""
    return _clip(lw, node, [bound.receiver], kwargs)


def _update(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`scaler.update()`, and `update(others)` of a ModuleDict, a set or a dict, which holds the others from then on."""
    container = is_container(bound.receiver)
    if container is not None:
        for value in args:
            lookup.adopt(lw, container, value)
        return Const(value=None)
    if kwargs or any(map(is_filled, args)):
        put(lw, node)
    if the_object(bound.receiver, "scaler") is None:
        return None
    lw.emit(node, ScalerCall(target=bound.receiver, args=dict(kwargs), what="update"))
    return Const(value=None)


CONTRACTS.names["torch.nn.utils.clip_grad_norm_"] = CONTRACTS.names["torch.nn.utils.clip_grad_value_"] = _clip
CONTRACTS.methods.update(
    clip_grad_norm_=_clip_method, update=_update,
    register_buffer=_register_buffer, backward=_backward, step=_step, zero_grad=_zero_grad, unscale_=_unscale, no_sync=_no_sync,
    forward=_explicit_forward,
    **dict.fromkeys(kinds()["ends-gradient"], _detached), **dict.fromkeys(kinds()["gives-itself"], _same_object),
    **dict.fromkeys(_HIDDEN_METHODS, _hidden),
)  # fmt: skip
CONTRACTS.families.append(by_prefix)


__all__ = ["Guard", "by_prefix"]
