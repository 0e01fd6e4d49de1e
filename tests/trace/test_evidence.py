"""What is looked at for one random stream and for labels of unequal weight, alone and in real runs of two ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ddp_audit.compare.silent import silent_faults
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.store import load_run
from ddp_audit.trace.worker.api_hooks import ApiHooks, _is_same
from ddp_audit.trace.worker.evidence import Draws, label_weight

pytestmark = pytest.mark.traced

WORKER = str(Path(__file__).parent / "unequal_worker.py")
LABELS = torch.tensor([1, 2, 3, 4, 5, -100, -100, -100])


def outputs() -> torch.Tensor:
    return torch.linspace(0, 1, 80).reshape(8, 10).requires_grad_()


def test_the_weight_of_a_label() -> None:
    x = outputs()
    assert label_weight(cross_entropy(x, LABELS)) == (5, 0.2)
    assert label_weight(torch.tensor(3.0) * cross_entropy(x, LABELS) / 2 + 0.1 * x.sum()) == (5, pytest.approx(0.3))
    assert label_weight(cross_entropy(x, LABELS, label_smoothing=0.1)) == (5, pytest.approx(0.18))
    image = torch.zeros(2, 10, 4, 4, requires_grad=True)
    assert label_weight(cross_entropy(image, torch.zeros(2, 4, 4, dtype=torch.long))) == (32, 1 / 32)


def test_losses_that_have_no_such_weight() -> None:
    x = outputs()
    assert label_weight(cross_entropy(x, LABELS, reduction="sum") / 5) is None
    assert label_weight(cross_entropy(x, LABELS, weight=torch.ones(10))) is None
    assert label_weight(cross_entropy(x, torch.full((8,), -100))) is None
    assert label_weight(x.square().mean()) is None
    assert label_weight(torch.tensor(1.0)) is None
    used = cross_entropy(x, LABELS)
    used.backward()
    assert label_weight(used) is None


def test_hooks_of_saved_tensors_are_not_run() -> None:
    x = outputs()
    unpacked: list[torch.Tensor] = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        unpacked.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        loss = cross_entropy(x, LABELS)
    assert label_weight(loss) is None and not unpacked
    calls: list[int] = []

    def part(value: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return cross_entropy(value, LABELS)

    recomputed = checkpoint(part, x * 1, use_reentrant=False)
    assert label_weight(recomputed) is None and len(calls) == 1
    recomputed.backward()


def drawn(draw: object = None, *, batch: int = 7, loader: bool = True, grad: bool = True) -> int:
    draws = Draws()
    torch.manual_seed(4)
    if loader:
        draws.after_batch()
    else:
        draws.after_step()
    if callable(draw):
        draw()
    return draws.at_forward(grad, batch)


def test_what_is_drawn_for_a_forward() -> None:
    def noise() -> None:
        torch.randn(4, 8)

    assert drawn(noise) == drawn(noise, batch=8) != 0
    assert drawn(lambda: torch.randn(1000)) not in (0, drawn(noise))  # over the end of the generator's block
    assert drawn(noise, loader=False) != drawn(noise, loader=False, batch=8)
    assert drawn() == drawn(lambda: torch.rand(1)) == drawn(lambda: torch.randint(9, ()).item()) == 0
    assert drawn(lambda: torch.manual_seed(5)) != 0  # the state has changed; Patches tells Draws of a seed
    draws = Draws()
    draws.after_batch()
    torch.manual_seed(5)
    draws.after_seed()
    assert draws.at_forward(True, 7) == 0
    assert drawn(noise, grad=False) == drawn(noise, loader=False, batch=0) == 0
    torch.manual_seed(4)
    before = torch.get_rng_state()
    drawn()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("faults", [True, False])
def test_runs_with_and_without_the_faults(tmp_path: Path, faults: bool) -> None:
    arguments = ["--faults"] if faults else []
    result = run_traced(["torchrun", "--nproc-per-node", "2", "--standalone", WORKER, *arguments], directory=tmp_path)
    assert result.exit_code == 0
    for run in (load_run(tmp_path), load_columns(tmp_path)[0]):
        found = {fault.kind: fault for fault in silent_faults(run)}
        assert set(found) == ({"token-weights", "seed"} if faults else set())
        if faults:
            assert "weighs 2.00 times" in found["token-weights"].explanation
            assert "the seed 1 from" in found["seed"].explanation and "6 of 6" in found["seed"].explanation


def test_how_states_are_loaded_and_gradients_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clips = [(owner, f"clip_grad_{name}") for owner in (nn.utils, nn.utils.clip_grad) for name in ("norm", "norm_", "value_")]
    loads = [(nn.Module, "load_state_dict"), (torch, "load"), (torch.serialization, "load")]
    for owner, name in [
        *loads,
        *clips,
        (torch.amp.GradScaler, "unscale_"),
        (torch.distributed.Work, "wait"),
        (torch.distributed, "broadcast_object_list"),
        (torch.distributed.distributed_c10d, "broadcast_object_list"),
    ]:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # what is patched below is put back afterwards
    told: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr("ddp_audit.trace.worker.places.identity", str)
    tracer = SimpleNamespace(on=True, note=lambda event: told.append((event.kind, event.detail)))
    ApiHooks(tracer, lambda kind, **detail: told.append((kind, detail)), lambda call, *args: call(*args))  # type: ignore[arg-type]

    def last() -> tuple[str, dict[str, Any]]:
        return told[-1]

    net, path = nn.Linear(2, 1), tmp_path / "net.pt"
    torch.save({"state": net.state_dict(), "empty": [torch.empty(1, device="meta")]}, path)
    torch.load(path)
    assert last() == ("read", {"path": str(path), "devices": ("cpu", "meta")})
    state = torch.load(f=path, map_location="meta")["state"]
    assert last()[1]["devices"] == ("meta",)
    before = len(told)
    net.load_state_dict(net.state_dict())
    assert len(told) == before  # a strict load fails aloud
    net.load_state_dict({f"module.{name}": value for name, value in state.items()}, False)
    assert last() == ("loaded", {"given": 2, "unexpected": 2})
    net.load_state_dict(strict=False, state_dict={"bias": net.bias.detach(), "other": net.bias})
    assert last() == ("loaded", {"given": 2, "unexpected": 1})

    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(net(torch.ones(1, 2)).sum()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), max_norm=100.0)
    assert last() == ("clip", {"cut": False})
    nn.utils.clip_grad_norm_(parameters=net.parameters(), max_norm=1.0)
    assert last() == ("clip", {"cut": True})
    nn.utils.clip_grad_value_(net.parameters(), 1.0)
    assert last() == ("clip", {"cut": None})
    scaler.step(optimizer)
    assert last() == ("unscaled", {"scale": 8.0})
    compiled = torch.compile(lambda p: nn.utils.clip_grad_norm_([p], 1.0), backend="eager", fullgraph=True)
    before = len(told)
    assert compiled(net.weight).item() > 0 and len(told) == before  # it is compiled as without the patch


class Own:
    def __eq__(self, other: object) -> bool:
        raise AssertionError("code of the program")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("held", "came", "same"),
    [
        (None, 0.5, False),
        (0.5, 0.5, True),
        (1, True, False),
        (float("nan"), float("nan"), True),
        (["a", (1, None)], ["a", (1, None)], True),
        (["a", (1, None)], ["a", (1, 2)], False),
        ([1], [1, 2], False),
        (list(range(200)), list(range(200)), None),
        ({"a": 1}, {"a": 1}, None),
        (Own(), Own(), None),
        (Own(), None, False),
    ],
)
def test_what_came_beside_what_was_held(held: object, came: object, same: bool | None) -> None:
    assert _is_same(held, came) is same
    assert _is_same(came, came) is True
