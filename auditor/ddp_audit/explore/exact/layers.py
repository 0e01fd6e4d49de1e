"""Modules of an interpreted run: what torch's layers register, attributes of modules, and their calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, containers, hooks, tensors, training
from ddp_audit.explore.exact.values import (
    MISSING,
    PLAIN,
    Class,
    Function,
    Module,
    Native,
    Param,
    Tensor,
    Unknown,
    tensors_in,
)

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

Made = Callable[[Module, dict[str, Any]], None]
_LAYERS: dict[str, tuple[tuple[str, ...], Made]] = {}
_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
_OPAQUE = ("Transformer", "TransformerDecoder", "TransformerDecoderLayer", "Bilinear", "AdaptiveLogSoftmaxWithLoss", "RNNCell",
           "LSTMCell", "GRUCell")  # fmt: skip
_LOSS = ("Loss", "CosineSimilarity", "PairwiseDistance")


def layer(name: str, *parameters: str) -> Callable[[Made], Made]:
    """Registers what a layer of torch.nn makes; `parameters` are those of its constructor, in order."""

    def register(made: Made) -> Made:
        for one in name.split():
            _LAYERS[one] = (parameters, made)
        return made

    return register


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _param(module: Module, name: str, *sizes: Any, dtype: str = "float32") -> None:
    known = tuple(s for s in sizes if isinstance(s, int))
    module.params[name] = Param(known if len(known) == len(sizes) else None, dtype, device="cpu")


def _on(value: Any) -> bool:
    return value is not False


@layer("Linear", "in_features", "out_features", "bias")
def _linear(m: Module, a: dict[str, Any]) -> None:
    _param(m, "weight", _size(a.get("out_features")), _size(a.get("in_features")))
    if _on(a.get("bias", True)):
        _param(m, "bias", _size(a.get("out_features")))


def _convolution(dimensions: int, transposed: bool) -> Made:
    def made(m: Module, a: dict[str, Any]) -> None:
        kernel = a.get("kernel_size")
        sides = list(kernel) if isinstance(kernel, (tuple, list)) else [_size(kernel)] * dimensions
        into, out, groups = _size(a.get("in_channels")), _size(a.get("out_channels")), _size(a.get("groups", 1))
        first, second = (into, out) if transposed else (out, into)
        _param(m, "weight", first, None if second is None or not groups else second // groups, *sides)
        if _on(a.get("bias", True)):
            _param(m, "bias", out)

    return made


for _n in (1, 2, 3):
    _conv = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias")
    _LAYERS[f"Conv{_n}d"] = (_conv, _convolution(_n, False))
    _transposed = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups", "bias")
    _LAYERS[f"ConvTranspose{_n}d"] = (_transposed, _convolution(_n, True))


@layer("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm", "num_features", "eps", "momentum", "affine", "track_running_stats")
def _batch_norm(m: Module, a: dict[str, Any]) -> None:
    _normalisation(m, a, _on(a.get("affine", True)), _on(a.get("track_running_stats", True)))


@layer("InstanceNorm1d InstanceNorm2d InstanceNorm3d", "num_features", "eps", "momentum", "affine", "track_running_stats")
def _instance_norm(m: Module, a: dict[str, Any]) -> None:
    _normalisation(m, a, a.get("affine") is True, a.get("track_running_stats") is True)


def _normalisation(m: Module, a: dict[str, Any], affine: bool, tracked: bool) -> None:
    channels = _size(a.get("num_features"))
    if affine:
        _param(m, "weight", channels)
        _param(m, "bias", channels)
    if tracked:
        shape = None if channels is None else (channels,)
        m.buffers |= {"running_mean": Tensor(shape), "running_var": Tensor(shape), "num_batches_tracked": Tensor((), "int64")}


@layer("GroupNorm", "num_groups", "num_channels", "eps", "affine")
def _group_norm(m: Module, a: dict[str, Any]) -> None:
    if _on(a.get("affine", True)):
        _param(m, "weight", _size(a.get("num_channels")))
        _param(m, "bias", _size(a.get("num_channels")))


@layer("LayerNorm RMSNorm", "normalized_shape", "eps", "elementwise_affine", "bias")
def _layer_norm(m: Module, a: dict[str, Any]) -> None:
    given = a.get("normalized_shape")
    shape = list(given) if isinstance(given, (tuple, list)) else [_size(given)]
    if _on(a.get("elementwise_affine", True)):
        _param(m, "weight", *shape)
        if _on(a.get("bias", True)) and not str(m.cls).endswith("RMSNorm"):
            _param(m, "bias", *shape)


@layer("Embedding EmbeddingBag", "num_embeddings", "embedding_dim")
def _embedding(m: Module, a: dict[str, Any]) -> None:
    _param(m, "weight", _size(a.get("num_embeddings")), _size(a.get("embedding_dim")))


@layer("PReLU", "num_parameters")
def _prelu(m: Module, a: dict[str, Any]) -> None:
    _param(m, "weight", _size(a.get("num_parameters", 1)))


@layer("LSTM GRU RNN", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
def _recurrent(m: Module, a: dict[str, Any]) -> None:
    gates = {"LSTM": 4, "GRU": 3}.get(str(m.cls).rsplit(".", 1)[-1], 1)
    size, hidden, count = _size(a.get("input_size")), _size(a.get("hidden_size")), _size(a.get("num_layers", 1))
    if size is None or hidden is None or count is None or a.get("proj_size"):
        m.opaque = True
        return
    directions = ("", "_reverse") if a.get("bidirectional") is True else ("",)
    for number in range(count):
        for suffix in directions:
            into = size if number == 0 else hidden * len(directions)
            _param(m, f"weight_ih_l{number}{suffix}", gates * hidden, into)
            _param(m, f"weight_hh_l{number}{suffix}", gates * hidden, hidden)
            if _on(a.get("bias", True)):
                _param(m, f"bias_ih_l{number}{suffix}", gates * hidden)
                _param(m, f"bias_hh_l{number}{suffix}", gates * hidden)


@layer("MultiheadAttention", "embed_dim", "num_heads", "dropout", "bias")
def _attention(m: Module, a: dict[str, Any]) -> None:
    width = _size(a.get("embed_dim"))
    if width is None or {"kdim", "vdim", "add_bias_kv"} & set(a):
        m.opaque = True
        return
    _param(m, "in_proj_weight", 3 * width, width)
    bias = _on(a.get("bias", True))
    if bias:
        _param(m, "in_proj_bias", 3 * width)
    m.children["out_proj"] = make("torch.nn.Linear", [width, width, bias], {})


@layer("TransformerEncoderLayer", "d_model", "nhead", "dim_feedforward")
def _encoder_layer(m: Module, a: dict[str, Any]) -> None:
    width, inner = a.get("d_model"), a.get("dim_feedforward", 2048)
    m.children = {
        "self_attn": make("torch.nn.MultiheadAttention", [width, a.get("nhead")], {}),
        "linear1": make("torch.nn.Linear", [width, inner], {}),
        "linear2": make("torch.nn.Linear", [inner, width], {}),
        "norm1": make("torch.nn.LayerNorm", [width], {}),
        "norm2": make("torch.nn.LayerNorm", [width], {}),
    }


@layer("TransformerEncoder", "encoder_layer", "num_layers", "norm")
def _encoder(m: Module, a: dict[str, Any]) -> None:
    inner, count = a.get("encoder_layer"), _size(a.get("num_layers"))
    if not isinstance(inner, Module) or count is None:
        m.opaque = True
        return
    layers = Module("torch.nn.ModuleList")
    layers.children = {str(i): clone(inner) for i in range(count)}
    m.children = {"layers": layers}
    if isinstance(a.get("norm"), Module):
        m.children["norm"] = a["norm"]


def make(name: str, args: list[Any], kwargs: dict[str, Any]) -> Module:
    """A layer of torch.nn. One that registers nothing has no parameters; one that is not known in detail is opaque."""
    made = Module(name)
    last = name.rsplit(".", 1)[-1]
    if last in _CONTAINERS:
        containers.fill(made, last, args, kwargs)
    elif last in _LAYERS:
        parameters, register = _LAYERS[last]
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        made.attrs.update(given)
        register(made, given)
        if "device" in kwargs:
            for _, param in made.named_parameters():
                param.device = None
        dtype = tensors.dtype_of(kwargs.get("dtype"))
        if dtype is not None:
            _cast(made, dtype)
    elif last.startswith("Lazy") or last in _OPAQUE:
        made.opaque, made.opaque_buffers = True, "BatchNorm" in last
    return made


def clone(module: Module) -> Module:
    """A deep copy: parameters and buffers of its own."""
    memo: dict[int, Any] = {}

    def visit(old: Module) -> Module:
        if id(old) in memo:
            found: Module = memo[id(old)]
            return found
        new = Module(old.cls, attrs=dict(old.attrs), opaque=old.opaque, opaque_buffers=old.opaque_buffers)
        memo[id(old)] = new
        new.params = {n: memo.setdefault(id(p), copy.copy(p)) for n, p in old.params.items()}
        new.buffers = {n: copy.copy(b) for n, b in old.buffers.items()}
        new.children = {n: visit(c) for n, c in old.children.items()}
        return new

    return visit(module)


def _cast(module: Module, dtype: str) -> None:
    for _, inner in module.walk():
        for tensor in (*inner.params.values(), *inner.buffers.values()):
            if isinstance(tensor, Tensor) and tensor.dtype is not None and "float" in tensor.dtype:
                tensor.dtype = dtype


def frozen(it: Interpreter, tensor: Tensor, flag: Any) -> Tensor:
    """`tensor.requires_grad_(flag)`."""
    freeze(it, [tensor], flag)
    return tensor


def freeze(it: Interpreter, params: Iterable[Any], flag: Any) -> None:
    """`requires_grad_(flag)` on parameters, told to the wrappers that hold them."""
    it.effects += 1  # a forward that was remembered uses other parameters now
    for param in params:
        if isinstance(param, Param):
            param.requires_grad = flag is not False
            for wrapper in it.wrappers:
                name = wrapper.names.get(id(param))
                if name is not None:
                    wrapper.ddp.set_requires_grad(name, param.requires_grad)


# ---- attributes


def attribute(it: Interpreter, module: Module, name: str) -> Any:
    """An attribute or a method of a module."""
    for table in (module.params, module.buffers, module.children, module.attrs):
        if name in table:
            return table[name]
    if isinstance(module.cls, Class):
        found = module.cls.find(name)
        if found is not MISSING and not (isinstance(found, Function) and name == "__call__"):
            return calls.bound(it, found, module)
    return outside_attribute(it, module, name)


def outside_attribute(it: Interpreter, module: Module, name: str) -> Any:
    """What torch.nn.Module itself offers."""
    if name == "training":
        return module.training
    if name == "__class__":
        return module.cls
    known = METHODS.get(name) or hooks.ON_MODULES.get(name)
    if known is not None:
        return Native(lambda *args, **kwargs: known(it, module, list(args), kwargs), name)
    if name.startswith("register_"):
        return Native(lambda *args, **kwargs: tensors.hooked(it, args))
    return Unknown(name)


def set_attribute(it: Interpreter, module: Module, name: str, value: Any) -> None:
    """`module.name = value`: parameters and modules are registered."""
    for table in (module.params, module.children, module.attrs):
        table.pop(name, None)
    if isinstance(value, Param):
        module.params[name] = value
    elif isinstance(value, Module):
        module.children[name] = value
    elif name in module.buffers:
        module.buffers[name] = value
    else:
        module.attrs[name] = value
    if isinstance(value, (Param, Module)):
        training.changed(it)


def _register_buffer(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    name = args[0] if args else kwargs.get("name")
    value = args[1] if len(args) > 1 else kwargs.get("tensor")
    if isinstance(value, Unknown):
        value = Tensor(None, None)
    if isinstance(name, str):
        module.attrs.pop(name, None)
        module.buffers[name] = value
    elif not isinstance(name, str):
        module.opaque_buffers = True


def _register_parameter(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    if len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], Param):
        module.params[args[0]] = args[1]


def _add_module(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    if len(args) > 1 and isinstance(args[1], Module):
        module.children[str(args[0])] = args[1]


def _apply(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
    for inner in [m for _, m in module.walk()][::-1]:
        if args:
            calls.call(it, args[0], [inner], {})
    return module


def _train(flag: bool) -> Callable[..., Module]:
    def change(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
        it.modes += 1
        mode = flag and (args[0] is not False if args else kwargs.get("mode", True) is not False)
        for _, inner in module.walk():
            inner.training = mode
        return module

    return change


def _to(name: str) -> Callable[..., Module]:
    def move(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
        dtype = tensors.DTYPES.get(name) or next((d for d in map(tensors.dtype_of, (*args, *kwargs.values())) if d), None)
        if dtype is not None and any(p.dtype != dtype for _, p in module.named_parameters()):
            _cast(module, dtype)
            training.moved(it, module, dtype)
        kind = name if name in ("cuda", "cpu") else next((k for k in map(_device_kind, (*args, *kwargs.values())) if k), None)
        params = [p for _, p in module.named_parameters()]
        if kind is not None and all(p.device for p in params) and any(p.device != kind for p in params):
            training.moved(it, module, None)
        for param in params if kind is not None or (args and dtype is None) else ():
            param.device = kind
        return module

    return move


def _device_kind(value: Any) -> str | None:
    """The kind of device that an argument of `.to` names; None where it names none, or one that is not known."""
    kind = getattr(value, "type", value)
    if isinstance(kind, str):
        return kind.partition(":")[0]
    return "cuda" if type(kind) is int else None


def _load(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Unknown:
    if kwargs.get("assign") is True:
        for _, inner in module.walk():
            inner.params = {n: Param(p.shape, p.dtype, requires_grad=p.requires_grad) for n, p in inner.params.items()}

        training.changed(it)
    return Unknown("missing and unexpected keys")


def _parameters(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Unknown("parameters") if module_is_opaque(module) else [p for _, p in module.named_parameters()]


def module_is_opaque(module: Module) -> bool:
    """Whether a module or one inside it holds parameters that are not known."""
    return any(inner.opaque for _, inner in module.walk())


def _named(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Unknown("parameters") if module_is_opaque(module) else list(module.named_parameters())


def _state(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _requires_grad(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
    freeze(it, [p for _, p in module.named_parameters()], args[0] if args else kwargs.get("requires_grad", True))
    return module


def _zero_grad(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:

    training.zero_grad(it, [p for _, p in module.named_parameters()], kwargs.get("set_to_none", True) is not False)


METHODS: dict[str, Callable[..., Any]] = {
    "register_buffer": _register_buffer, "register_parameter": _register_parameter, "add_module": _add_module,
    "register_module": _add_module, "append": containers.append, "extend": containers.extend, "update": containers.update,
    "apply": _apply, "train": _train(True), "eval": _train(False), "load_state_dict": _load, "parameters": _parameters,
    "named_parameters": _named, "state_dict": _state, "requires_grad_": _requires_grad, "zero_grad": _zero_grad,
    "modules": lambda it, m, a, k: [inner for _, inner in m.walk()],
    "named_modules": lambda it, m, a, k: list(m.walk()),
    "children": lambda it, m, a, k: list(m.children.values()),
    "named_children": lambda it, m, a, k: list(m.children.items()),
    "buffers": lambda it, m, a, k: [b for _, b in m.named_buffers()],
    "named_buffers": lambda it, m, a, k: list(m.named_buffers()),
    "keys": lambda it, m, a, k: list(containers.entries(m)), "values": lambda it, m, a, k: list(containers.entries(m).values()),
    "items": lambda it, m, a, k: list(containers.entries(m).items()),
    "forward": lambda it, m, a, k: forward(it, m, a, k),
    **{name: _to(name) for name in ("to", "cuda", "cpu", "half", "float", "double", "bfloat16")},
    "__init__": lambda it, m, a, k: None,
}  # fmt: skip


# ---- calls


def call_module(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A call of a module, past any wrapper around it."""

    it.module_depth += 1
    try:
        inner = remembered_forward if it.module_depth == 1 else hooked_forward
        result = inner(it, module, args, kwargs)
    finally:
        it.module_depth -= 1
    return training.past_wrapper(it, result) if it.module_depth == 0 else result


def remembered_forward(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`forward`, which is not run again where it had no effects and nothing that it depends on has changed."""
    key = _key(it, module, args, kwargs)
    known = None if key is None else it.remembered.get(key)
    if known is not None:
        result, order, effects, losses = known
        if effects == it.effects:
            it.used += order
            it.losses += losses
            return tensors.fresh(result)
    effects, events, start, losses = it.effects, len(it.events), len(it.used), it.losses
    result = hooked_forward(it, module, args, kwargs)
    if key is not None and it.effects == effects and len(it.events) == events:
        it.remembered[key] = (tensors.fresh(result), it.used[start:], effects, it.losses - losses)
    return result


def _key(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a forward depends on beside the state of objects, which `effects` counts; None where that cannot be said."""
    known = it.flags.get(id(module))
    if known is None or known[0] != it.modes:
        known = it.flags[id(module)] = (it.modes, module, tuple(inner.training for _, inner in module.walk()))
    parts: list[Any] = [id(module), it.grad, known[2]]
    for name, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, Tensor) and not value.deps and not isinstance(value, Param):
            parts.append((name, value.shape, value.dtype, value.local))
        elif isinstance(value, PLAIN):
            parts.append((name, type(value), value))
        else:
            return None
    return tuple(parts)


def hooked_forward(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The forward of a module with the hooks around it."""
    if not module.before and not module.after:
        return forward(it, module, args, kwargs)
    return hooks.around(it, module, module, args, kwargs, lambda args, kwargs: forward(it, module, args, kwargs))


def forward(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The forward of a module: that of its class, or what a layer of torch gives."""
    cls = module.cls
    if isinstance(cls, Class):
        method = cls.find("forward")
        if isinstance(method, Function):
            return calls.invoke(it, method, args, kwargs, module)
        return _opaque(it, module, args, kwargs)
    last = module.layer
    if last == "Sequential":
        value = args[0] if args else Unknown()
        for child in module.children.values():
            value = call_module(it, child, [value], {})
        return value
    source = next(tensors_in([*args, *kwargs.values()]), None)
    if source is None or module.opaque or module.children:
        return _opaque(it, module, args, kwargs)
    own = [module.params[n] for n in ("bias", "weight") if n in module.params]
    if "Norm" not in last:
        own.reverse()  # a normalization's weight is ready before its bias, a linear layer's after it
    own += [p for n, p in module.params.items() if n not in ("bias", "weight")]
    shape: tuple[int, ...] | None = source.shape
    dtype = source.dtype
    weight = module.params.get("weight")
    if last == "Linear":
        shape = (*source.shape[:-1], weight.shape[0]) if source.shape and weight is not None and weight.shape else None
        dtype = weight.dtype if weight is not None else dtype
    elif last == "Embedding":
        known = source.shape is not None and weight is not None and weight.shape is not None
        shape = (*(source.shape or ()), weight.shape[1]) if known and weight is not None and weight.shape else None
        dtype = weight.dtype if weight is not None else dtype
    elif last.endswith(_LOSS):
        shape = () if module.attrs.get("reduction", "mean") in ("mean", "sum") else None
    elif last == "Flatten":
        shape = tensors.flattened(source.shape, 1)
    elif last.startswith(("Conv", "MaxPool", "AvgPool", "Adaptive", "Unfold", "Fold", "Upsample", "Pixel")):
        shape = None
    if last in ("LSTM", "GRU", "RNN"):
        return _recurred(it, module, source, [*args, *kwargs.values(), *own])
    return tensors.like(it, source, *args, *own, shape=shape, dtype=dtype)


def _recurred(it: Interpreter, module: Module, source: Tensor, given: list[Any]) -> tuple[Tensor, Any]:
    """The output of a recurrent layer and its last state, both of which depend on all of its parameters."""
    hidden, layers = _size(module.attrs.get("hidden_size")), _size(module.attrs.get("num_layers", 1))
    directions = 2 if module.attrs.get("bidirectional") is True else 1
    output: tuple[int, ...] | None = None
    state: tuple[int, ...] | None = None
    if source.shape and len(source.shape) in (2, 3) and hidden is not None and layers is not None:
        output = (*source.shape[:-1], directions * hidden)
        batch = source.shape[:-1][0 if module.attrs.get("batch_first") is True else 1 :][:1] if len(source.shape) == 3 else ()
        state = (directions * layers, *batch, hidden)
    result = tensors.like(it, source, *given, shape=output)
    last = tensors.like(it, result, shape=state)
    return result, (last, tensors.fresh(last)) if module.layer == "LSTM" else last


def _opaque(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The output of a module whose forward is not known: it depends on all that goes in and all that it holds."""
    params = [p for _, p in module.named_parameters()]
    return Tensor(None, None, tensors.dependencies(it, *args, *kwargs.values(), *params), True)
