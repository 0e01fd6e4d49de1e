"""The kinds of `kinds.toml` hold what torch and Python have, and a name is of a kind by its last parts."""

from __future__ import annotations

import builtins
import queue
from pathlib import Path

import pytest

import ddp_audit
import ddp_audit_rules
from ddp_audit.knowledge.kinds import is_kind, kinds

SOURCES = [path for package in (ddp_audit, ddp_audit_rules) for path in Path(package.__file__).parent.rglob("*.py")]


def test_a_kind_is_told_by_the_last_parts_of_a_name() -> None:
    assert is_kind("torch.distributed.ReduceOp.AVG", "no-sum") and not is_kind("torch.distributed.ReduceOp.SUM", "no-sum")
    assert is_kind("torch.rand", "draws-in-torch") and not is_kind("numpy.random.rand", "draws-in-torch")
    assert is_kind("sum", "mean", "sum") and not is_kind("summary", "mean", "sum")


def test_every_kind_is_asked_for() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    own = set(kinds()) - {
        "of-sizes",
        "of-elements",
        "like-another",
        "same-elements",
        "same-shape",
        "reductions",
        "losses",
        "by-data",
        "joins",
    }
    assert [kind for kind in sorted(own) if f'"{kind}"' not in text] == []


def test_losses_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    own = kinds()["loss-functions"]
    classes = {name for name in dir(torch.nn) if name.endswith("Loss")} - {"AdaptiveLogSoftmaxWithLoss"}
    assert classes <= own and kinds()["losses"] <= own and kinds()["leaves-labels-out"] <= own
    functions = own - {name for name in own if name[0].isupper()}
    assert [name for name in functions if not hasattr(torch.nn.functional, name)] == []


def test_operations_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for kind in ("mean", "sum", "division", "product", "ends-gradient", "count", "parts-of-batch"):
        of_python = {"divide"} & kinds()[kind]
        assert [n for n in kinds()[kind] - of_python if not hasattr(torch.Tensor, n) and not hasattr(torch, n)] == [], kind
    for kind in ("puts-together", "new-numbers"):
        assert [name for name in kinds()[kind] if not hasattr(torch, name)] == [], kind


def test_optimizers_by_what_the_scale_of_gradients_does_to_them() -> None:
    torch = pytest.importorskip("torch")

    def steps(name: str) -> list[float]:
        found = []
        for scale in (1.0, 8.0):
            weight = torch.nn.Parameter(torch.ones(3))
            optimizer = getattr(torch.optim, name)([weight], lr=0.1)
            weight.grad = torch.full((3,), scale)
            optimizer.step()
            found.append(float((1 - weight.detach()).abs().max()))
        return found

    for name in kinds()["scale-of-gradients-counts"] & set(dir(torch.optim)) - {"LBFGS"}:
        small, large = steps(name)
        assert large > 4 * small, name
    for name in kinds()["divides-scale-out"] & set(dir(torch.optim)) - {"Muon", "Adafactor"}:
        small, large = steps(name)
        assert large < 1.5 * small, name


def test_exceptions_are_those_of_python() -> None:
    known = {*dir(builtins), *dir(queue), "OutOfMemoryError"}
    for kind in ("on-all-ranks", "on-one-rank"):
        assert kinds()[kind] <= known
    assert not kinds()["on-all-ranks"] & kinds()["on-one-rank"]
