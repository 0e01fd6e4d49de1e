"""What torch's layers register and in which order their gradients become ready, asked of torch for every layer of the table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import ForkedRanks, held

from ddp_audit.explore.exact.layer_table import _LAYERS, make, nodes
from ddp_audit.explore.exact.values import Lib, Module
from ddp_audit.machine.graph import ready_together

Drawn = tuple[str, list[Any], dict[str, Any]]


def _options(**choices: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*choices.values()):
        yield {name: value for name, value in zip(choices, values, strict=True) if value is not None}


def drawn() -> Iterator[Drawn]:
    """Layers with many arguments."""
    flags = (None, True, False)
    yield from (("Linear", [4, 3], kw) for kw in _options(bias=flags))
    yield from (("Bilinear", [4, 4, 3], kw) for kw in _options(bias=flags))
    for n in (1, 2, 3):
        for kw in _options(bias=flags, groups=(None, 2), kernel_size=(3, (3,) * n), padding_mode=(None, "circular")):
            yield f"Conv{n}d", [4, 6], kw
        yield from ((f"ConvTranspose{n}d", [4, 6, 3], kw) for kw in _options(bias=flags, groups=(None, 2)))
        yield from ((f"BatchNorm{n}d", [4], kw) for kw in _options(affine=flags, track_running_stats=flags))
        yield from ((f"InstanceNorm{n}d", [4], kw) for kw in _options(affine=flags, track_running_stats=flags))
    yield from (("GroupNorm", [2, 4], kw) for kw in _options(affine=flags))
    yield from (("LayerNorm", [shape], kw) for shape in (4, (4, 4), [4]) for kw in _options(elementwise_affine=flags, bias=flags))
    yield from (("RMSNorm", [4], kw) for kw in _options(elementwise_affine=flags))
    yield from ((name, [9, 4], kw) for name in ("Embedding", "EmbeddingBag") for kw in _options(max_norm=(None,)))
    yield from (("PReLU", args, {}) for args in ([], [5]))
    for kw in _options(num_layers=(None, 2, 3), bias=flags, batch_first=flags, bidirectional=flags, dtype=(None, "float64")):
        yield "RNN", [4, 3], kw
        yield "GRU", [4, 3], kw
        yield from (("LSTM", [4, 3], {**kw, **more}) for more in ({}, {"proj_size": 2}))
    yield "RNN", [4, 3, 2, "relu", False], {}
    yield "LSTM", [4, 3, 2, True, False, 0.1, True, 2], {}
    yield from ((name, [4, 3], kw) for name in ("RNNCell", "LSTMCell", "GRUCell") for kw in _options(bias=flags))
    for kw in _options(bias=flags, add_bias_kv=flags, add_zero_attn=(None, True), batch_first=flags):
        yield from (("MultiheadAttention", [4, 2], {**kw, **more}) for more in ({}, {"kdim": 3, "vdim": 5}, {"kdim": 3}))
    for kw in _options(bias=flags, norm_first=flags, batch_first=flags, dim_feedforward=(None, 8)):
        yield "TransformerEncoderLayer", [4, 2], kw
        yield "TransformerDecoderLayer", [4, 2], kw
    yield "TransformerEncoderLayer", [4, 2, 8, 0.1, "gelu", 1e-5, True, True, False], {}
    for side, norm in itertools.product(("Encoder", "Decoder"), (False, True)):
        yield f"Transformer{side}", [(f"Transformer{side}Layer", [4, 2, 8]), 2], {"norm": ("LayerNorm", [4])} if norm else {}
    for kw in _options(bias=flags, norm_first=flags, num_decoder_layers=(1, 2)):
        yield "Transformer", [4, 2], {"num_encoder_layers": 1, "dim_feedforward": 8, **kw}


CASES = list(dict.fromkeys(map(repr, drawn())))
SOME = 13  # of so many forms one is tried by default, and the first form of every layer


def sample() -> list[str]:
    """A varied part of the forms, with every layer in it."""
    first = {eval(case)[0]: case for case in reversed(CASES)}
    return [case for place, case in enumerate(CASES) if place % SOME == 0 or case in first.values()]


def real(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    import torch

    def value(one: Any) -> Any:
        inner = isinstance(one, tuple) and isinstance(one[0], str)
        return real(one[0], one[1], {}) if inner else one

    options = {key: value(one) for key, one in kwargs.items()}
    if "dtype" in options:
        options["dtype"] = getattr(torch, options["dtype"])
    return getattr(torch.nn, name)(*map(value, args), **options)


def ours(name: str, args: list[Any], kwargs: dict[str, Any]) -> Module:
    def value(one: Any) -> Any:
        return ours(one[0], one[1], {}) if isinstance(one, tuple) and isinstance(one[0], str) else one

    options = {key: value(one) for key, one in kwargs.items()}
    if "dtype" in options:
        options["dtype"] = Lib(f"torch.{options['dtype']}")
    return make(f"torch.nn.{name}", list(map(value, args)), options)


def ready(module: Module, live: bool) -> list[str]:
    """The order in which the table says that gradients become ready."""
    names = {id(p): name for name, p in module.named_parameters()}
    order: list[str] = []
    for params, waits in reversed(nodes(module, live)):
        order += [names[id(params[place])] for place in ready_together(len(params), int(waits))]
    return order


def really_ready(module: Any, name: str, live: bool) -> list[str]:
    """The order in which a backward pass of torch makes gradients ready."""
    import torch

    order: list[str] = []
    for own, param in module.named_parameters():
        param.register_post_accumulate_grad_hook(lambda _, own=own: order.append(own))
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    x = torch.randn(inputs(module, name), dtype=dtype, requires_grad=live)
    x = x * 1 if live else x
    if name.startswith("Embedding"):
        output = module(torch.tensor([[1, 2]]))
    elif name == "MultiheadAttention":
        output = module(x, torch.randn(5, 4, module.kdim), torch.randn(5, 4, module.vdim))
    elif name == "Bilinear" or name in ("Transformer", "TransformerDecoder", "TransformerDecoderLayer"):
        output = module(x, x)
    else:
        output = module(x)
    while isinstance(output, tuple):
        output = output[0]
    if output.requires_grad:
        output.sum().backward()
    return order


def inputs(module: Any, name: str) -> tuple[int, ...]:
    if name[-2:] in ("1d", "2d", "3d"):
        return (2, 4, *[6] * int(name[-2]))
    if name == "GroupNorm":
        return 2, 4
    if name == "PReLU":
        return 2, module.num_parameters
    return (2, 4) if name.endswith("Cell") else (5, 4, 4)


@pytest.mark.parametrize("part", ["sample", pytest.param("all", marks=pytest.mark.nightly)])
def test_a_table_says_of_every_layer_what_torch_says(part: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    cases = sample() if part == "sample" else CASES
    names = {eval(case)[0] for case in cases}
    assert set(_LAYERS) - names == {"SyncBatchNorm"}
    assert len(CASES) > 400
    wrong = []
    for case in cases:
        name, args, kwargs = eval(case)
        module, table = real(name, args, kwargs), ours(name, args, kwargs)
        shapes = [(n, tuple(p.shape), str(p.dtype).removeprefix("torch.")) for n, p in module.named_parameters()]
        if shapes != [(n, p.shape, p.dtype) for n, p in table.named_parameters()]:
            wrong.append((case, "parameters", shapes))
        if [(n, tuple(b.shape)) for n, b in module.named_buffers()] != [(n, b.shape) for n, b in table.named_buffers()]:
            wrong.append((case, "buffers", []))
        for live in (False, True):
            order = really_ready(module, name, live)
            if order != ready(table, live):
                wrong.append((case, f"order, {live=}", order, ready(table, live)))
            module = real(name, args, kwargs)
    assert wrong == []


@pytest.mark.parametrize("waiting", range(5))
@pytest.mark.parametrize("count", range(1, 8))
def test_gradients_of_one_node_become_ready_as_the_heap_of_the_engine_says(count: int, waiting: int) -> None:
    torch = pytest.importorskip("torch")
    order: list[int] = []
    params = [torch.nn.Parameter(torch.ones(1)) for _ in range(count)]
    for place, param in enumerate(params):
        param.register_post_accumulate_grad_hook(lambda _, place=place: order.append(place))
    others = [torch.ones(1, requires_grad=True) * 1 for _ in range(waiting)]
    torch.cat([*others, *params]).sum().backward()
    assert order == ready_together(count, waiting)


HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
"""
STEPS = "for _ in range(3):\n    {call}.sum().backward()\n"
REBUILT = {
    "LSTM": ("nn.LSTM(512, 512, 4, batch_first=True)", "model(torch.randn(1, 2, 512))[0]"),
    "LSTM both ways": ("nn.LSTM(256, 256, 3, bidirectional=True, bias=False)", "model(torch.randn(2, 1, 256))[0]"),
    "LSTM with projections": ("nn.LSTM(256, 512, 2, proj_size=128)", "model(torch.randn(2, 1, 256))[0]"),
    "GRU": ("nn.GRU(512, 512, 3)", "model(torch.randn(2, 1, 512))[0]"),
    "RNN": ("nn.RNN(512, 768, 4, nonlinearity='relu')", "model(torch.randn(2, 1, 512))[0]"),
    "encoder": (
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True), 3)",
        "model(torch.randn(1, 4, 384))",
    ),
    "encoder, norm first": (
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, norm_first=True), 2, norm=nn.LayerNorm(256))",
        "model(torch.randn(4, 1, 256))",
    ),
    "decoder": (
        "nn.TransformerDecoder(nn.TransformerDecoderLayer(256, 4, 1024), 2)",
        "model(torch.randn(4, 1, 256), torch.randn(4, 1, 256))",
    ),
    "attention": (
        "nn.MultiheadAttention(512, 8, kdim=300, vdim=700)",
        "model(*[torch.randn(2, 1, n) for n in (512, 300, 700)])[0]",
    ),
    "whole": ("nn.Transformer(128, 4, 1, 2, 2048)", "model(torch.randn(4, 1, 128), torch.randn(4, 1, 128))"),
    "convolutions": (
        "nn.Sequential(nn.Conv2d(3, 300, 5), nn.BatchNorm2d(300), nn.ReLU(), nn.Conv2d(300, 200, 3), nn.Flatten(), nn.Linear(800, 900))",
        "model(torch.randn(1, 3, 8, 8))",
    ),
}


SMALL = ", bucket_cap_mb=0.5"
SMALL_BY_DEFAULT = ("LSTM with projections", "attention", "convolutions")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        *(("", name) for name in REBUILT),
        *(
            pytest.param(SMALL, name, marks=() if name in SMALL_BY_DEFAULT else pytest.mark.nightly, id=f"small buckets-{name}")
            for name in REBUILT
        ),
    ],
)
def test_rebuilt_buckets_have_the_sizes_that_torch_gives_them(forked: ForkedRanks, tmp_path: Path, name: str, options: str) -> None:
    module, call = REBUILT[name]
    script = tmp_path / "script.py"
    script.write_text(f"{HEAD}model = DDP({module}{options})\n{STEPS.format(call=call)}")
    assert held(forked, script, 2) is None
