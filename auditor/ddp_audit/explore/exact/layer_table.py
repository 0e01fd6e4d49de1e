"""What torch's layers register, and in which order a forward of one uses it.

The order is that of torch on a CPU (on a GPU, cuDNN's recurrent layers are one node each); the tests compare names, shapes and
order with torch, for every layer and many arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ddp_audit.explore.exact import containers
from ddp_audit.explore.exact.contents import dtype_of
from ddp_audit.explore.exact.values import Module, Param, Tensor
from ddp_audit.knowledge.kinds import is_kind

Made = Callable[[Module, dict[str, Any]], None]
_LAYERS: dict[str, tuple[tuple[str, ...], Made]] = {}
_OPAQUE = ("AdaptiveLogSoftmaxWithLoss",)


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


_GATES = {"LSTM": 4, "LSTMCell": 4, "GRU": 3, "GRUCell": 3}


@layer("RNN", "input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional")
def _plain_recurrent(m: Module, a: dict[str, Any]) -> None:
    _recurrent(m, a)


@layer("LSTM GRU", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
def _recurrent(m: Module, a: dict[str, Any]) -> None:
    gates = _GATES.get(m.layer, 1)
    size, hidden, count = _size(a.get("input_size")), _size(a.get("hidden_size")), _size(a.get("num_layers", 1))
    projected = _size(a.get("proj_size", 0))
    if size is None or hidden is None or count is None or projected is None or not _known_flags(a, "bias", "bidirectional"):
        m.opaque = True
        return
    out = projected or hidden
    directions = ("", "_reverse") if a.get("bidirectional") is True else ("",)
    for number in range(min(count, _MOST_COPIES)):
        for suffix in directions:
            into = size if number == 0 else out * len(directions)
            _param(m, f"weight_ih_l{number}{suffix}", gates * hidden, into)
            _param(m, f"weight_hh_l{number}{suffix}", gates * hidden, out)
            if _on(a.get("bias", True)):
                _param(m, f"bias_ih_l{number}{suffix}", gates * hidden)
                _param(m, f"bias_hh_l{number}{suffix}", gates * hidden)
            if projected:
                _param(m, f"weight_hr_l{number}{suffix}", projected, hidden)
    m.opaque = count > _MOST_COPIES


@layer("RNNCell LSTMCell GRUCell", "input_size", "hidden_size", "bias")
def _cell(m: Module, a: dict[str, Any]) -> None:
    gates, size, hidden = _GATES.get(m.layer, 1), _size(a.get("input_size")), _size(a.get("hidden_size"))
    rows = None if hidden is None else gates * hidden
    _param(m, "weight_ih", rows, size)
    _param(m, "weight_hh", rows, hidden)
    if _on(a.get("bias", True)):
        _param(m, "bias_ih", rows)
        _param(m, "bias_hh", rows)


@layer("Bilinear", "in1_features", "in2_features", "out_features", "bias")
def _bilinear(m: Module, a: dict[str, Any]) -> None:
    out = _size(a.get("out_features"))
    _param(m, "weight", out, _size(a.get("in1_features")), _size(a.get("in2_features")))
    if _on(a.get("bias", True)):
        _param(m, "bias", out)


@layer("MultiheadAttention", "embed_dim", "num_heads", "dropout", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim")
def _attention(m: Module, a: dict[str, Any]) -> None:
    width = _size(a.get("embed_dim"))
    keys, values = (_size(width if a.get(name) is None else a[name]) for name in ("kdim", "vdim"))
    if width is None or keys is None or values is None or not _known_flags(a, "bias", "add_bias_kv"):
        m.opaque = True
        return
    if keys == values == width:
        _param(m, "in_proj_weight", 3 * width, width)
    else:
        for name, into in (("q", width), ("k", keys), ("v", values)):
            _param(m, f"{name}_proj_weight", width, into)
    bias = _on(a.get("bias", True))
    if bias:
        _param(m, "in_proj_bias", 3 * width)
    if a.get("add_bias_kv") is True:
        _param(m, "bias_k", 1, 1, width)
        _param(m, "bias_v", 1, 1, width)
    m.children["out_proj"] = make("torch.nn.Linear", [width, width, bias], {})


_BLOCK = ("d_model", "nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps", "batch_first", "norm_first", "bias")


def _blocks(attentions: tuple[str, ...]) -> Made:
    def made(m: Module, a: dict[str, Any]) -> None:
        width, inner, bias = a.get("d_model"), a.get("dim_feedforward", 2048), _on(a.get("bias", True))
        if not _known_flags(a, "bias", "norm_first"):
            m.opaque = True
            return
        for name in attentions:
            m.children[name] = make("torch.nn.MultiheadAttention", [width, a.get("nhead"), 0.0, bias], {})
        m.children["linear1"] = make("torch.nn.Linear", [width, inner, bias], {})
        m.children["linear2"] = make("torch.nn.Linear", [inner, width, bias], {})
        for number in range(len(attentions) + 1):
            m.children[f"norm{number + 1}"] = make("torch.nn.LayerNorm", [width], {"bias": bias})
        m.attrs["norm_first"] = a.get("norm_first") is True

    return made


_LAYERS["TransformerEncoderLayer"] = (_BLOCK, _blocks(("self_attn",)))
_LAYERS["TransformerDecoderLayer"] = (_BLOCK, _blocks(("self_attn", "multihead_attn")))


def _stack(m: Module, a: dict[str, Any]) -> None:
    inner, count = a.get("encoder_layer", a.get("decoder_layer")), _size(a.get("num_layers"))
    if not isinstance(inner, Module) or count is None or count * sum(1 for _ in inner.walk()) > _MOST_MODULES:
        m.opaque = True
        return
    layers = Module("torch.nn.ModuleList")
    layers.children = {str(i): clone(inner) for i in range(count)}
    m.children = {"layers": layers}
    if isinstance(a.get("norm"), Module):
        m.children["norm"] = a["norm"]


_LAYERS["TransformerEncoder"] = (("encoder_layer", "num_layers", "norm"), _stack)
_LAYERS["TransformerDecoder"] = (("decoder_layer", "num_layers", "norm"), _stack)


@layer("Transformer", "d_model", "nhead", "num_encoder_layers", "num_decoder_layers", "dim_feedforward", "dropout", "activation",
       "custom_encoder", "custom_decoder", "layer_norm_eps", "batch_first", "norm_first", "bias")  # fmt: skip
def _transformer(m: Module, a: dict[str, Any]) -> None:
    for side in ("encoder", "decoder"):
        own = a.get(f"custom_{side}")
        if own is None:
            options: dict[str, Any] = {name: a[name] for name in ("dim_feedforward", "norm_first", "bias") if name in a}
            width, heads = a.get("d_model", 512), a.get("nhead", 8)
            block = make(f"torch.nn.Transformer{side.title()}Layer", [width, heads], options)
            norm = make("torch.nn.LayerNorm", [width], {"bias": _on(a.get("bias", True))})
            own = make(f"torch.nn.Transformer{side.title()}", [block, a.get(f"num_{side}_layers", 6), norm], {})
        if isinstance(own, Module):
            m.children[side] = own
        else:
            m.opaque = True


def _known_flags(a: dict[str, Any], *names: str) -> bool:
    return all(isinstance(a.get(name, False), bool) for name in names)


# ---- the order of use


def nodes(module: Module, live: bool) -> list[tuple[list[Param], bool]]:
    """The nodes of the graph that a forward of a layer of torch makes for its parameters, in the order in which it makes them.

    Each is given with its parameters as inputs in order, and with whether it has another input that waits for a gradient.
    `live` says whether what goes into the layer requires a gradient.
    """
    last, params = module.layer, module.params
    order: list[tuple[str, ...]]
    if last in _RECURRENT:
        return _recurrent_nodes(module, live)
    if last in _INSIDE:
        return [node for child in _INSIDE[last](module) for node in nodes(child, True)]
    if last in ("RNNCell", "LSTMCell"):
        order = [("weight_hh",), ("bias_hh",), ("weight_ih",), ("bias_ih",)]
    elif last == "GRUCell":
        order = [("weight_ih",), ("bias_ih",), ("weight_hh",), ("bias_hh",)]
    elif last == "MultiheadAttention":
        order = [(n,) for n in ("in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight")]
        order += [("bias_k",), ("bias_v",)]
    elif last in _APART or last.startswith("InstanceNorm"):
        order = [("weight",), ("bias",)]
    else:
        order = [("weight", "bias")]
    named = {name for names in order for name in names}
    made = [([params[n] for n in names if n in params], live) for names in order]
    made += [([param], live) for name, param in params.items() if name not in named]
    made = [node for node in made if node[0]]
    return [*made, *(node for child in module.children.values() for node in nodes(child, True))]


_RECURRENT = ("LSTM", "GRU", "RNN")
_APART = ("Linear", "Bilinear")  # the weight goes through a node of its own before the one that takes the bias
_MOST_COPIES = 256  # layers of a stack
_MOST_MODULES = 20_000  # in all of them


def _recurrent_nodes(module: Module, live: bool) -> list[tuple[list[Param], bool]]:
    params = module.params
    # oneDNN takes a layer of an LSTM in one node where it can.
    whole = module.layer == "LSTM" and "weight_hr_l0" not in params and all(p.dtype == "float32" for p in params.values())
    found: list[tuple[list[Param], bool]] = []
    for first in (name for name in params if name.startswith("weight_ih")):
        suffix = first.removeprefix("weight_ih")
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if whole else ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        own = [params[n + suffix] for n in (*names, "weight_hr") if n + suffix in params]
        # The other direction waits, or the layer below; the first node of all has the input alone.
        found += [(own, live or bool(found))] if whole else [([param], live) for param in own]
    return found


def _block_order(module: Module) -> list[Module]:
    c = module.children
    attentions = [c[name] for name in ("self_attn", "multihead_attn") if name in c]
    norms = [c[f"norm{number + 1}"] for number in range(len(attentions) + 1)]
    parts = [[attention] for attention in attentions] + [[c["linear1"], c["linear2"]]]
    if module.attrs.get("norm_first") is True:
        return [m for norm, part in zip(norms, parts, strict=True) for m in (norm, *part)]
    return [m for norm, part in zip(norms, parts, strict=True) for m in (*part, norm)]


def _stack_order(module: Module) -> list[Module]:
    return [*module.children["layers"].children.values(), *(m for name, m in module.children.items() if name != "layers")]


_INSIDE: dict[str, Callable[[Module], list[Module]]] = {
    "TransformerEncoderLayer": _block_order, "TransformerDecoderLayer": _block_order,
    "TransformerEncoder": _stack_order, "TransformerDecoder": _stack_order,
    "Transformer": lambda m: [m.children["encoder"], m.children["decoder"]],
}  # fmt: skip


def make(name: str, args: list[Any], kwargs: dict[str, Any]) -> Module:
    """A layer of torch.nn. One that registers nothing has no parameters; one that is not known in detail is opaque."""
    made = Module(name)
    last = name.rsplit(".", 1)[-1]
    if is_kind(last, "container"):
        containers.fill(made, last, args, kwargs)
    elif last in _LAYERS:
        parameters, register = _LAYERS[last]
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        made.attrs.update(given)
        register(made, given)
        if "device" in kwargs:
            for _, param in made.named_parameters():
                param.device = None
        dtype = dtype_of(kwargs.get("dtype"))
        if dtype is not None:
            cast(made, dtype)
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


def cast(module: Module, dtype: str) -> None:
    for _, inner in module.walk():
        for tensor in (*inner.params.values(), *inner.buffers.values()):
            if isinstance(tensor, Tensor) and tensor.dtype is not None and "float" in tensor.dtype:
                tensor.dtype = dtype
