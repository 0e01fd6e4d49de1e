"""Names of libraries in an interpreted run: what calling them gives, and their constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.events import COLLECTIVE, Event
from ddp_audit.explore.exact import (
    calls,
    collectives,
    copies,
    data,
    described,
    early,
    hooks,
    iterators,
    layer_table,
    optimizers,
    python_names,
    python_objects,
    records,
    settings,
    standard,
    standard_collections,
    tensors,
    texts,
    totals,
    training,
)
from ddp_audit.explore.exact.acting import may_act
from ddp_audit.explore.exact.contents import tensors_in, unknown
from ddp_audit.explore.exact.values import Class, Context, Cut, Function, Lib, Method, Module, Native, Param, Tensor, Unknown
from ddp_audit.knowledge import functions
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.knowledge.libraries import has_batchnorm, may_send, unfollowed
from ddp_audit.program.lookup import canonical

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

Model = Callable[["Interpreter", list[Any], dict[str, Any]], Any]
_MODES = {"no_grad": False, "inference_mode": False, "enable_grad": True}
_QUESTIONS = frozenset({
    "is_tensor", "is_grad_enabled", "is_autocast_enabled", "get_default_dtype", "get_num_threads", "initial_seed",
    "is_inference_mode_enabled", "get_rng_state", "get_float32_matmul_precision", "compiled_with_cxx11_abi",
})  # fmt: skip

_OF_CHECKPOINT = frozenset({"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"})


@dataclass(slots=True, eq=False)
class Device:
    """A torch.device; a part that is not known is Unknown."""

    type: Any
    index: Any = None

    def attribute(self, it: Interpreter, name: str) -> Any:
        """`type` and `index`."""
        return {"type": self.type, "index": self.index}.get(name, Unknown(name))


def attribute(it: Interpreter, owner: str, name: str) -> Any:
    """`library.name`."""
    full = canonical(f"{owner}.{name}")
    if full in ("math.pi", "math.e", "math.inf", "math.nan", "math.tau"):
        return getattr(math, name)
    if full == "os.environ":
        return standard.Environment(it)
    if full == "sys.argv":
        return [it.frames[0].source.path, *it.arguments] if it.frames else [*it.arguments]
    if full == "sys.modules":
        return standard.Modules(it.modules)
    if full == "torch.__version__":
        return it.machine.torch or f"{it.torch_version()[0]}.{it.torch_version()[1]}.0"
    if full.endswith("__version__"):
        return Unknown("a version")
    return described.value(it, Lib(full))


def call(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a thing of a library."""
    early.given(it, name, args, kwargs)
    back = functions.returned(name, args, kwargs)
    if back is not None:
        return back[1] if back[0] is None else back[0]
    known = _CALLS.get(name) or python_names.CALLS.get(name)
    if known is None and (may_send(name) or not _are_harmless(name, (*args, *kwargs.values()))):
        it.opaque(name)
        totals.forgotten((*args, *kwargs.values()))
    result = _called(it, name, args, kwargs) if known is None else known(it, args, kwargs)
    if isinstance(result, Unknown):
        result.quiet = not may_send(name)
    return result


def _are_harmless(name: str, given: Iterable[Any]) -> bool:
    """Whether a library that sends nothing itself gets nothing that sends when it is called.

    Of torch, only what takes a function to call it later is looked at by what it is given: layers, losses and optimizers take
    tensors, modules and functions of numbers.
    """
    return name.startswith("torch.") or all(_is_harmless(value) for value in given)


def _is_harmless(value: Any) -> bool:
    return not isinstance(value, (Function, Method, Native)) or not may_act(value)


def _called(it: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if missed := unfollowed(name):
        it.bound(missed)
    last = name.rsplit(".", 1)[-1]
    if name.startswith("torch."):
        return _torch(it, name, last, args, kwargs)
    if name.startswith("builtins."):
        return python_names.unknown_builtin(it, last, args, kwargs)
    if name.startswith("math."):
        return _math(it, name, args)
    if name.startswith(("torchvision.models.", "timm.")):
        return Module(name, opaque=True, opaque_buffers=has_batchnorm(name) or name.startswith("timm."))
    it.exhaust((*args, *kwargs.values()))
    deps = frozenset().union(*(t.deps for t in tensors_in([*args, *kwargs.values()])))
    if deps:
        return Tensor(None, None, deps, True)
    if functions.reasons(name):
        return Unknown("a value", True)
    result = unknown(*args, *kwargs.values(), why=last)
    return result


def _torch(it: Interpreter, name: str, last: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Whole families of torch's names."""
    if last.startswith("register_module_") and last.endswith("hook"):
        tensors.hooked(it, tuple(args))
    if name.startswith("torch.distributed."):
        return _distributed(it, name, last, args, kwargs)
    if last in _MODES and name.count(".") == 1:
        if args and isinstance(args[0], (Function, Method)):
            return Context(grad=_MODES[last]) if not isinstance(args[0], Function) else _with_mode(args[0], _MODES[last])
        off = last == "inference_mode" and kwargs.get("mode", args[0] if args else True) is False  # which turns gradients on
        return Context(grad=True if off else _MODES[last])
    if name.startswith("torch.nn.functional."):
        return tensors.function(it, last, args, kwargs)
    if name.startswith("torch.nn.init."):
        totals.changed(it, last, args[0] if args else None, ())
        return args[0] if args else Unknown()
    if name.startswith("torch.nn.utils."):
        if last.startswith("clip_grad"):
            settings.of_clipping(it, last, args, kwargs)
        return (
            Tensor((), "float32", frozenset(), False) if "clip_grad" in last or "norm" in last else args[0] if args else Unknown()
        )
    if name.startswith("torch.nn.") and last[:1].isupper():
        return layer_table.make(name, args, kwargs)
    if name.startswith("torch.optim.") and last[:1].isupper():
        return optimizers.optimizer(it, last, args, kwargs)
    if name.startswith("torch.lr_scheduler."):
        return optimizers.scheduler(args, kwargs)
    if last == "GradScaler":
        return optimizers.Scaler()
    if "autocast" in last or last in ("sdpa_kernel", "record_function", "profile", "set_detect_anomaly", "detect_anomaly"):
        return Context()
    if name.startswith("torch.utils.checkpoint."):
        return _checkpointed(it, last, args, kwargs) if args else Unknown()
    if name.startswith(("torch.cuda.", "torch.backends.", "torch.random.", "torch.mps.", "torch.accelerator.", "torch.profiler.")):
        return Unknown(last)
    if last in _QUESTIONS:
        return it.grad if last == "is_grad_enabled" else Unknown(last)
    if name.startswith(("torch.use_", "torch.set_", "torch.manual_seed", "torch.save", "torch.seed")):
        return Unknown(last)
    if name.startswith("torch.load") or name.count(".") > 1:
        deps = frozenset().union(*(t.deps for t in tensors_in([*args, *kwargs.values()])))
        return Tensor(None, None, deps, True) if deps else Unknown(last)
    if last.endswith("_") and args:
        totals.changed(it, last, args[0], args[1:])
    made = tensors.create(it, last, args, kwargs)
    return totals.made_by(last, args, tensors.function(it, last, args, kwargs) if made is None else made)


def _checkpointed(it: Interpreter, last: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a function, or functions in a row, give whose forward runs again in the backward."""
    if last != "checkpoint_sequential":
        return calls.call(it, args[0], args[1:], {key: value for key, value in kwargs.items() if key not in _OF_CHECKPOINT})
    result = args[2] if len(args) > 2 else kwargs.get("input", Unknown("an input"))
    parts = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
    for part in parts:
        result = calls.call(it, part, [result], {})
    return result


def _with_mode(function: Function, grad: bool) -> Function:
    function.grad = grad
    return function


def _distributed(it: Interpreter, name: str, last: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name.startswith(("torch.distributed.nn.", "torch.distributed._functional_collectives.")):
        source = next(tensors_in(args), None)
        op = collectives.FOLDED.get(last, last)
        known = None if source is None else source.numel
        dtype = None if source is None else source.dtype
        reduce_op = collectives.reduce_name(kwargs.get("op", args[1] if len(args) > 1 and op == "all_reduce" else None))
        it.emit([Event(COLLECTIVE, op=op, numel=known, dtype=dtype, reduce_op=reduce_op if "reduce" in op else None)])
        it.bound(f"{name} issues collectives in backward that are not followed")
        return tensors.like(it, source, shape=source.shape) if source is not None else Unknown()
    shards = is_kind(name, "shards-parameters")
    if shards or name.startswith("torch.distributed.fsdp."):
        if shards:
            it.bound(
                f"what {last} sends is not followed: it gathers parameters in every forward and scatters gradients in every "
                "backward, and nothing that is said of DDP's buffers and buckets holds for it"
            )
        return args[0] if args else Unknown()
    if last == "PowerSGDState":
        return hooks.power_sgd(it, args, kwargs)
    if last in ("fp16_compress_wrapper", "bf16_compress_wrapper") and args and isinstance(args[0], Lib):
        inner = args[0].name.rsplit(".", 1)[-1]
        return Lib(name.replace("_wrapper", "_hook")) if inner == "allreduce_hook" else Unknown(f"{last}({inner})")
    if name.count(".") == 2:
        return collectives.call(it, last, args, kwargs)
    if name in ("torch.distributed.algorithms.Join", "torch.distributed.algorithms.join.Join"):
        joined = args[0] if args else kwargs.get("joinables")
        if isinstance(joined, (list, tuple)) and len(joined) == 1 and isinstance(joined[0], training.Wrapper):
            return training.join(it, joined[0], args[1:], {k: v for k, v in kwargs.items() if k != "joinables"})
    if "checkpoint" in name or last == "Join":
        it.bound(f"{name} is not followed")
    return Unknown(last)


def _math(it: Interpreter, name: str, args: list[Any]) -> Any:
    try:
        return it.fold(name, *args)
    except Cut:
        raise
    except Exception:
        return unknown(*args, why="a number")


def _parameter(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Param:
    source = args[0] if args else kwargs.get("data")
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    if isinstance(source, Tensor):
        return Param(source.shape, source.dtype, requires_grad=wanted is not False)
    return Param(None, None, requires_grad=wanted is not False)


def _convert(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    module = args[0] if args else kwargs.get("module")
    if isinstance(module, Module):
        for _, inner in module.walk():
            if str(inner.cls).startswith("torch.nn.BatchNorm"):
                inner.cls = "torch.nn.SyncBatchNorm"
    return module


def _compile(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else Native(lambda function: function)


def _device(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    given = args[0] if args else kwargs.get("type", Unknown())
    if isinstance(given, Device):
        return given
    index = args[1] if len(args) > 1 else kwargs.get("index")
    if isinstance(given, str):
        kind, _, number = given.partition(":")
        return Device(kind, int(number) if number.isdigit() else index)
    return Device(Unknown("a device"), index) if isinstance(given, Unknown) else Device("cuda", given)


def _grad_mode(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Context:
    known = it.known_truth(args[0] if args else kwargs.get("mode"))
    before = it.grad
    if known is not None:
        it.grad = known  # it holds from here on, also without `with`

    def leave() -> None:
        it.grad = before

    return Context(leave=leave)


def _no_mode(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Context:
    return Context()


def _backward(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> None:
    given = functions.given("torch.autograd.backward", args, kwargs)
    training.backward(it, list(tensors_in(given.get("tensors"))), given.get("retain_graph") is True)


def _autograd_grad(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`torch.autograd.grad`: local gradients, whatever stands around it."""
    keeps = kwargs.get("create_graph") is True
    found = list(tensors_in(args[0] if args else kwargs.get("outputs")))
    asked = list(tensors_in(args[1] if len(args) > 1 else kwargs.get("inputs")))
    training.autograd_grad(it, found, asked, kwargs.get("retain_graph") is True or keeps)
    kept = frozenset().union(*(t.deps for t in found)) if keeps else frozenset()
    return tuple(Tensor(t.shape, t.dtype, kept, True) for t in asked) if asked else Unknown("gradients", True)


def _functional_gradient(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Native:
    """`torch.func.grad(f)`: a function that runs f and gives gradients like the arguments that it names."""
    numbers = kwargs.get("argnums", args[1] if len(args) > 1 else 0)

    def run(*given: Any, **named: Any) -> Any:
        calls.call(it, args[0] if args else kwargs.get("func"), list(given), named)
        chosen = tuple(given[n] for n in numbers) if isinstance(numbers, tuple) else given[numbers] if len(given) > numbers else ()
        made = tensors.fresh(chosen)
        for tensor in tensors_in(made):
            tensor.deps, tensor.local = frozenset(), True
        return made

    return Native(run)


def _spawn(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:

    given = functions.given("torch.multiprocessing.spawn", args, kwargs)
    handed = given.get("args")
    rest = list(handed) if isinstance(handed, (list, tuple)) else []
    return calls.call(it, given.get("fn"), [it.rank, *rest], {})


def _sampler(kind: str) -> Model:
    return lambda it, args, kwargs: data.sampler(it, kind, args, kwargs)


def _dataset(kind: str) -> Model:
    return lambda it, args, kwargs: data.dataset(it, kind, args, kwargs)


def _batches(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> data.Batches:
    given = functions.given("torch.utils.data.BatchSampler", args, kwargs)
    return data.Batches(given.get("sampler"), given.get("batch_size"), given.get("drop_last") is True)


_DATA = "torch.utils.data."
_CALLS: dict[str, Model] = {
    "torch.nn.Parameter": _parameter, "torch.nn.parameter.Parameter": _parameter,
    "torch.nn.parallel.DistributedDataParallel": lambda it, a, k: training.wrap(it, a, k),
    "torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model": lambda it, a, k: training.ignore(a, k),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": _convert, "torch.compile": _compile, "torch.jit.script": _compile,
    "torch.device": _device, "torch.set_grad_enabled": _grad_mode, "torch.autograd.set_grad_enabled": _grad_mode,
    "torch.autograd.backward": _backward, "torch.autograd.grad": _autograd_grad,
    "torch.func.grad": _functional_gradient, "torch.multiprocessing.spawn": _spawn,
    "torch.Generator": lambda it, a, k: Unknown("a generator"),
    "torch.autograd.set_detect_anomaly": _no_mode, "torch.nn.DataParallel": lambda it, a, k: a[0] if a else Unknown(),
    f"{_DATA}get_worker_info": lambda it, a, k: None,  # what a loader's workers share out is what one process would read
    "torch.is_tensor": lambda it, a, k: isinstance(a[0], Tensor) if a and not isinstance(a[0], Unknown) else Unknown(),
    f"{_DATA}DataLoader": lambda it, a, k: data.loader(it, a, k), f"{_DATA}BatchSampler": _batches,
    f"{_DATA}random_split": lambda it, a, k: data.random_split(it, a, k),
    **{f"{_DATA}{kind}": _sampler(kind) for kind in ("DistributedSampler", "RandomSampler", "SequentialSampler",
                                                    "WeightedRandomSampler", "SubsetRandomSampler")},
    **{f"{_DATA}{kind}": _dataset(kind) for kind in ("TensorDataset", "Subset", "ConcatDataset", "StackDataset")},
}  # fmt: skip

__all__ = [
    "Class", "Device", "Lib", "attribute", "call",
    "copies", "iterators", "python_objects", "records", "standard_collections", "texts",  # which register what they know
]  # fmt: skip
