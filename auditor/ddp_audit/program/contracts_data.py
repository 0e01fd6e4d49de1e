"""What calls of torch mean, continued: samplers and loaders, random draws, files, devices, processes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import given, named
from ddp_audit.knowledge.kinds import kinds
from ddp_audit.program.contracts import Contract, Contracts, generic
from ddp_audit.program.contracts_random import DRAWS, library_of, note_random, stream_of
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.names import called
from ddp_audit.program.nodes import (
    DeviceChoice,
    Draw,
    FileAccess,
    Load,
    LoaderMade,
    OwnDraw,
    SamplerMade,
    Save,
    SetEpoch,
    Spawn,
    Split,
)
from ddp_audit.program.operations import operation
from ddp_audit.program.slots import Key
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.values import (
    RANDOM,
    RANK,
    Bound,
    Const,
    Expr,
    Func,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    join_taint,
    leaf,
    loop_leaves,
    options,
    the_object,
)  # fmt: skip

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

# ---- data


@CONTRACTS.of("torch.utils.data.DistributedSampler")
def _sampler(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = given("torch.utils.data.DistributedSampler", args, kwargs)
    made = Obj(
        key=("sampler", lw.span(node), lw.way()),
        kind="sampler",
        cls="DistributedSampler",
        made=lw.span(node),
        info=arguments,
    )
    lw.emit(node, SamplerMade(target=made, args=arguments, cls="DistributedSampler", custom=False))
    return made


def _plain_sampler(name: str, source: str) -> Contract:
    """The contract of a sampler that knows no ranks; `source` is the parameter that says what it chooses from."""

    def make(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        arguments = given(name, args, kwargs)
        target = the_object(arguments.get(source), "sampler")
        if target is not None:
            return target
        cls, place = name.rpartition(".")[2], lw.span(node)
        return Obj(key=("plain-sampler", place), kind="plain-sampler", cls=cls, made=place, info=arguments)

    return make


CONTRACTS.names.update({name: _plain_sampler(name, source) for name, source in named("sampler").items()})


@CONTRACTS.of("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader")
def _loader(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = given("torch.utils.data.DataLoader", args, kwargs)
    made = Obj(key=("loader", lw.span(node), lw.way()), kind="loader", made=lw.span(node), info=arguments, text=lw.text(node))
    for data in options(arguments["dataset"]) if "dataset" in arguments else ():
        if isinstance(data, Obj) and isinstance(data.cls, ClassInfo):  # a data set, whatever it is derived from
            lw.classes_of.setdefault(data.key, data.cls)
    lw.emit(node, LoaderMade(target=made, args=arguments))
    for name in ("sampler", "batch_sampler", "dataset"):
        if name in arguments:
            lw.state[(made.key, name)] = arguments[name]
    return made


def _set_epoch(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    lw.emit(node, SetEpoch(target=bound.receiver, args={"epoch": args[0]} if args else dict(kwargs)))
    return Const(value=None)


CONTRACTS.methods["set_epoch"] = _set_epoch


def _draw(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    generator = kwargs.get("generator")
    name = library_of(lw.eval(node.func))
    own = stream_of(generator)
    if own:
        _of_own_stream(lw, node, own, args, kwargs)
    elif _counts_a_set(lw, node, args) and (generator is None or isinstance(generator, Const)):
        lw.emit(node, Draw(args=dict(enumerate_args(args)) | kwargs, what=called(node), stream=name.split(".")[0]))
    else:
        note_random(lw, node, name, kwargs)
    return generic(args, kwargs, lw.text(node), frozenset({RANDOM}), name or "?")


CONTRACTS.names.update(dict.fromkeys((name for name, what in DRAWS.items() if what == "indices"), _draw))


def _counts_a_set(lw: Lowering, node: ast.Call, args: list[Value]) -> bool:
    """Whether the arguments of a draw are made of the length of something, so that it draws places in that."""
    text = lw.text(node)
    return "len(" in text or ".shape[0]" in text or any(operation_of(v) == "builtins.len" for a in args for v in behind(a))


def _of_own_stream(lw: Lowering, node: ast.Call, stream: str, args: list[Value], kwargs: dict[str, Value]) -> None:
    if _counts_a_set(lw, node, args):
        lw.emit(node, OwnDraw(args=dict(enumerate_args(args)) | kwargs, what=called(node), stream=stream))


def _own_indices(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`generator.integers(0, len(data), 8)`; its value is what any other method's would be."""
    stream = stream_of(bound.receiver)
    if stream:
        _of_own_stream(lw, node, stream, args, kwargs)
    return None


CONTRACTS.methods.update(dict.fromkeys(kinds()["draws-indices"], _own_indices))


def enumerate_args(args: list[Value]) -> list[tuple[str, Value]]:
    """Positional arguments under their positions."""
    return [(str(i), a) for i, a in enumerate(args)]


# ---- data sets


@CONTRACTS.of("torch.utils.data.TensorDataset", "torch.utils.data.Subset", "torch.utils.data.ConcatDataset",
          "torch.utils.data.StackDataset")  # fmt: skip
def _dataset(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return library_dataset(lw, node, lw.calling.rpartition(".")[2], args, kwargs)


def library_dataset(lw: Lowering, node: ast.Call, cls: str, args: list[Value], kwargs: dict[str, Value]) -> Obj:
    """A map-style data set of a library; tainted by the rank where an argument is: then each rank has its own part."""
    key = ("dataset", lw.span(node), lw.way())
    taint = join_taint(*args, *kwargs.values()) & {RANK}
    download = kwargs.get("download")
    if isinstance(download, Const) and download.value is True:
        root = args[0] if args else kwargs.get("root", Unknown())
        lw.emit(node, FileAccess(args={"path": root}, what="download", safe=False, name=cls))
    return Obj(
        key=key, kind="dataset", cls=cls, made=lw.span(node), info=[*args, *kwargs.values()], taint=taint, text=lw.text(node)
    )


@CONTRACTS.of("torch.utils.data.random_split")
def _random_split(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    whole = library_dataset(lw, node, "random_split", args, kwargs)
    arguments = given("torch.utils.data.random_split", args, kwargs)
    lengths = arguments.get("lengths")
    lw.emit(node, Split(target=whole, args=arguments))
    count = len(lengths.items) if isinstance(lengths, Items) and not lengths.many else 0
    parts = tuple(replace(whole, key=(*whole.key, part)) for part in range(count))
    return Items(items=parts, kind="list", taint=whole.taint) if parts else whole


# ---- files, devices, seeds, processes


@CONTRACTS.of("atexit.register")
def _at_exit(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function that runs when the interpreter ends, after an exception too: as a finally block would."""
    from ddp_audit.program.calls import dispatch

    start = len(lw.program.nodes)
    if args:
        dispatch(lw, node, args[0], args[1:], kwargs)
    for made in lw.program.nodes[start:]:
        made.in_finally = True
    return args[0] if args else Unknown()


def _callback(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`stack.callback(f)` of an ExitStack: f runs when the block is left, after an exception too."""
    target = the_object(bound.receiver, "context")
    return None if target is None or target.key not in lw.exit_stacks else _at_exit(lw, node, args, kwargs)


CONTRACTS.methods["callback"] = _callback


@CONTRACTS.of("torch.save")
def _save(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = _with_path(given("torch.save", args, kwargs))
    content = arguments.get("obj")
    keys = [str(k.value) for k in content.keys or () if isinstance(k, Const)] if isinstance(content, Items) else None
    lw.emit(node, Save(args=arguments, content=keys))
    return Const(value=None)


@CONTRACTS.of("torch.load")
def _load(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = _with_path(given("torch.load", args, kwargs))
    number = lw.emit(node, Load(args=arguments))
    path = arguments.get("path", Unknown())
    return Unknown(text=lw.text(node), by=Made("torch.load", (path,), (("number", Const(value=number)),)))


def _with_path(arguments: dict[str, Value]) -> dict[str, Value]:
    """Arguments of torch.save and torch.load with the file under a longer name."""
    return {"path" if name == "f" else name: value for name, value in arguments.items()}


@CONTRACTS.of(
    "torch.cuda.set_device", "torch.accelerator.set_device_index", "torch.accelerator.set_device_idx", "torch.cuda.device"
)
def _set_device(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    lw.emit(node, DeviceChoice(index=args[0] if args else Unknown(), via="set_device"))
    return Obj(key=("nullcontext",), kind="context", info="")


@CONTRACTS.of("torch.device")
def _device(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = [*args, *kwargs.values()]
    index = args[1] if len(args) > 1 else kwargs.get("index", args[0] if args else Unknown())
    if "rank" in join_taint(*parts):
        lw.emit(node, DeviceChoice(index=index, via="torch.device"))
    return Expr(op="device", args=tuple(parts), taint=join_taint(*parts), text=lw.text(node))


@CONTRACTS.of(
    "torch.get_rng_state",
    "torch.cuda.get_rng_state",
    "torch.cuda.get_rng_state_all",
    "numpy.random.get_state",
    "random.getstate",
)
def _rng_state(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Unknown(taint=frozenset({RANDOM}), text="rng_state")


@CONTRACTS.of("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
def _spawn(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = given("torch.multiprocessing.spawn", args, kwargs)
    function, handed = arguments.get("fn"), arguments.get("args")
    rest = list(handed.items) if isinstance(handed, Items) else []
    lw.emit(node, Spawn(nprocs=arguments.get("nprocs", Const(value=1))))
    for option in options(function) if function is not None else ():
        if isinstance(option, Func) and isinstance(option.definition, FunctionInfo):
            from ddp_audit.program.functions import call_function

            return call_function(lw, option.definition, [leaf("local_rank"), *rest], {}, node)
    return Unknown()


@CONTRACTS.of("torch.multiprocessing.Process", "multiprocessing.Process", "threading.Thread")
def _process(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, handed = kwargs.get("target"), kwargs.get("args")
    starts = lw.calling.endswith(".Process")
    if starts:
        lw.emit(node, Spawn())
    if starts and isinstance(function, Func) and isinstance(function.definition, FunctionInfo):
        from ddp_audit.program.functions import call_function

        rest = [_of_the_process(a) for a in handed.items] if isinstance(handed, Items) else []
        before = _hand_over(lw, rest)
        call_function(lw, function.definition, rest, {}, node)
        for key, value in before.items():
            lw.state[key] = value
    return Obj(key=("process", lw.span(node)), kind="process", text="process")


def _of_the_process(value: Value) -> Value:
    """What a value that counts a loop is in the process that each turn of the loop starts: the turn is its local rank."""
    if not isinstance(value, Expr) or next(loop_leaves(value), None) is None:
        return value
    if value.op.startswith("loop:"):
        return leaf("local_rank")
    return operation(value.op, *map(_of_the_process, value.args), text=value.text)


def _hand_over(lw: Lowering, handed: Sequence[Value]) -> dict[Key, Value]:
    """Puts what counts a loop in the options that a process is handed as they are there; what they were here, by slot."""
    before: dict[Key, Value] = {}
    for value in handed:
        if isinstance(value, Obj) and value.kind in ("namespace", "instance"):
            for name, held in lw.state.of(value.key).items():
                if (now := _of_the_process(held)) is not held:
                    before[value.key, name] = held
                    lw.state[value.key, name] = now
    return before


@CONTRACTS.of("fire.Fire", "tyro.cli", "jsonargparse.CLI", "absl.app.run")
def _fire(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    from ddp_audit.program.classes import instantiate
    from ddp_audit.program.functions import call_function

    for option in options(args[0]) if args else ():
        if isinstance(option, Func) and isinstance(option.definition, FunctionInfo):
            return call_function(lw, option.definition, [], {}, node, unknown_arguments=True)
        if isinstance(option, Obj) and option.kind == "class":
            return instantiate(lw, node, option, [], {})
    return Unknown()
