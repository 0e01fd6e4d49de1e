"""What the files say of functions and classes is what torch, and the libraries that are installed, say of them."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from ddp_audit.knowledge.functions import defaults, described, given, named, parameters

torch = pytest.importorskip("torch")
TAKES = sorted(named("takes"))
OTHERWISE = {"broadcast_buffers": True, "generator": None}  # None in torch, which stands for it; a generator of its own


def _found(name: str) -> Any:
    """A thing of a library by the name that the files have for it; None where it is not installed, or has none."""
    name = name.replace("torch.lr_scheduler.", "torch.optim.lr_scheduler.")
    head, _, last = name.rpartition(".")
    if not head:
        return None
    try:
        return getattr(importlib.import_module(head), last, None)
    except ImportError:
        return getattr(_found(head), last, None)


@pytest.mark.parametrize("name", TAKES)
def test_parameters_are_those_of_the_library(name: str) -> None:
    thing = _found(name)
    if thing is None:
        pytest.skip(f"{name} is not installed (torch {torch.__version__})")
    real = {key: one for key, one in inspect.signature(thing).parameters.items() if key != "self"}
    assert list(parameters(name)) == list(real)[: len(parameters(name))]
    for key, value in defaults(name).items():
        default = real[key].default
        if key in OTHERWISE or (value is None and (default is inspect.Parameter.empty or key == "op")):
            continue
        assert value == default, key


def test_most_names_are_in_this_torch() -> None:
    assert len([name for name in TAKES if _found(name) is not None]) > 50


def test_each_parameter_that_is_named_is_one() -> None:
    for name, table in described().items():
        for key in ("sends", "equal", "message", "sampler", "path", "content", "safe-if"):
            assert not table.get(key) or table[key] in parameters(name), (name, key)


def test_arguments_are_taken_by_position_and_name() -> None:
    assert given("torch.distributed.broadcast", ["x"], {"src": 1}) == {"tensor": "x", "src": 1}
    assert given("torch.distributed.barrier", [], {}) == {}
    assert given("no.such.function", [1], {"a": 2}) == {"a": 2}


def test_defaults_are_python_values() -> None:
    assert defaults("torch.optim.Adam")["betas"] == (0.9, 0.999)
    assert defaults("torch.distributed.all_reduce") == {"tensor": None, "op": None, "group": None, "async_op": False}
