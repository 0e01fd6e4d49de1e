"""The functions of `tensors.toml` give on tensors what the file says."""

from __future__ import annotations

from typing import Any

import pytest

from ddp_audit.knowledge import tensors

torch = pytest.importorskip("torch")
X = torch.rand(2, 3) + 0.1
# Arguments behind the tensor, where one is needed.
GIVEN: dict[str, tuple[Any, ...]] = {
    "softmax": (1,), "log_softmax": (1,), "clamp": (0, 1), "clip": (0, 1), "clamp_": (0, 1), "pow": (2,), "add": (X,), "sub": (X,), "mul": (X,),
    "div": (X,), "add_": (X,), "sub_": (X,), "mul_": (X,), "div_": (X,), "masked_fill": (X > 1, 0.0), "masked_fill_": (X > 1, 0.0),
    "fill_": (1.0,), "copy_": (X,), "where": (X > 1, X), "cumsum": (0,), "roll": (1,), "flip": ((0,),), "layer_norm": ((3,),),
    "view": (6,), "reshape": (6,), "unsqueeze": (0,), "to": (torch.float64,), "type": (torch.float64,),
}  # fmt: skip


def called(name: str) -> Any:
    tensor = X.clone()
    function = getattr(tensor, name, None)
    if function is not None:
        return function(*GIVEN.get(name, ()))
    return getattr(torch.nn.functional, name)(tensor, *GIVEN.get(name, ()))


@pytest.mark.parametrize("name", sorted(tensors.SAME_SHAPE - {"cuda", "pin_memory"}))
def test_the_shape_stays(name: str) -> None:
    assert called(name).shape == X.shape


@pytest.mark.parametrize("name", sorted(tensors.SAME_ELEMENTS - {"cuda", "pin_memory"}))
def test_the_elements_stay(name: str) -> None:
    assert called(name).numel() == X.numel()


@pytest.mark.parametrize("name", sorted(tensors.REDUCTIONS))
def test_a_reduction_gives_one_number(name: str) -> None:
    assert called(name).shape == ()


@pytest.mark.parametrize("name", sorted(tensors.LOSSES))
def test_a_loss_gives_one_number(name: str) -> None:
    target = torch.zeros(2, dtype=torch.int64) if name == "nll_loss" else torch.rand(2, 3)
    assert getattr(torch.nn.functional, name)(torch.rand(2, 3), target).shape == ()


@pytest.mark.parametrize("name", sorted(tensors.OF_SIZES))
def test_sizes_make_a_shape(name: str) -> None:
    made = torch.full((2, 3), 1.0) if name == "full" else getattr(torch, name)(2, 3)
    assert made.shape == (2, 3) and made.dtype == torch.float32


def test_other_names_of_types_are_those_of_torch() -> None:
    for name, wanted in tensors.TYPES.items():
        found = torch.uint8 if name == "byte" else getattr(torch, name, None)
        assert found is None or found is getattr(torch, wanted), name


def test_the_size_depends_on_the_elements() -> None:
    assert torch.nonzero(torch.tensor([0, 1, 1])).shape[0] == 2 and torch.unique(torch.tensor([1, 1])).numel() == 1
    assert {"nonzero", "unique", "masked_select"} <= tensors.BY_DATA


def test_joins_join() -> None:
    for name in tensors.JOINS:
        assert getattr(torch, name)([X, X]).numel() == 12
