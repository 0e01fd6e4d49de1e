"""Replicas that part and factors that are wrong: what is looked at, alone and in real runs of two ranks."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from ddp_audit import events
from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.silent import silent_faults
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.launcher import resolve, run_traced
from ddp_audit.trace.store import load_run
from ddp_audit.trace.worker import fingerprint
from ddp_audit.trace.worker.buffers import Buffers
from ddp_audit.trace.worker.factor import common_ratio, multipliers, probe
from ddp_audit.trace.worker.state_sampler import StateSampler
from ddp_audit.trace.worker.wrappers import Wrapper, Wrappers

WORKER = str(Path(__file__).parent / "drift_worker.py")
TORCHRUN = ["torchrun", "--nproc-per-node", "2", "--standalone"]


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(WORKER).read_text().splitlines(), 1) if text in line)


def test_what_a_loss_is_multiplied_by() -> None:
    x = torch.linspace(0, 1, 8).reshape(4, 2).requires_grad_()
    labels = torch.tensor([0, 1, 0, 1])
    assert multipliers(x.mean()) == ((), True)
    assert multipliers(0.5 * mse_loss(x, x.detach() + 1) / 4) == ((0.25, 0.5), True)
    assert multipliers(torch.tensor(8.0) * cross_entropy(x, labels)) == ((8.0,), True)
    assert multipliers((x.mean() + x.square().mean()) / 4) == ((0.25,), False)  # one of several terms
    assert multipliers(x.sum() / 4) == ((0.25,), False)
    assert multipliers(cross_entropy(x, labels, reduction="sum")) == ((), False)
    assert multipliers(x.exp().mean() * x.mean()) == ((), False)
    assert multipliers(x) is None and multipliers(torch.tensor(1.0)) is None


def test_what_gradients_are_multiplied_by() -> None:
    gradients = [torch.linspace(-1, 1, 30).reshape(5, 6), torch.zeros(3), None, torch.ones(2, 3, 4, 4)[:, :, ::2]]
    before = probe(gradients)
    assert before[2] is before[3] is None
    for factor in (1.0, 2.0, 0.5):
        assert common_ratio(before, probe([None if g is None else g * factor for g in gradients])) == pytest.approx(factor)
    changed = [gradients[0].clone() * torch.linspace(1, 2, 30).reshape(5, 6), *gradients[1:]]
    assert common_ratio(before, probe(changed)) == 0.0
    assert common_ratio(probe([torch.zeros(3)]), probe([torch.ones(3)])) == 0.0
    assert common_ratio(probe([torch.ones(3)]), probe([torch.full((3,), torch.nan)])) == 0.0
    again = probe(gradients)
    gradients[0].mul_(3)  # in place, as an all-reduce does it
    assert common_ratio(again, probe(gradients)) == pytest.approx(3.0)
    low = [torch.linspace(-1, 1, 30).bfloat16()]
    assert common_ratio(probe(low), probe([low[0] / 3])) == pytest.approx(1 / 3, rel=0.01)


def test_the_hash_of_an_optimizers_state() -> None:
    def hashes(change: float = 0.0, **options: object) -> tuple[int, int]:
        torch.manual_seed(1)
        net = nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(net.parameters(), **options)  # type: ignore[arg-type]
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.state[net.bias]["exp_avg"].add_(change)
        return fingerprint.of_optimizer(optimizer, net.parameters())

    assert hashes() == hashes() != hashes(change=1e-6)
    assert hashes()[1] == hashes(change=1.0)[1] != hashes(amsgrad=True)[1]
    net = nn.Linear(3, 2)
    assert fingerprint.of_optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.parameters())[0] == 0
    assert "lr 0.25" in fingerprint.settings_of(torch.optim.SGD(net.parameters(), lr=0.25), net.parameters())


class Wrapped(nn.Module):
    """What stands for a DDP wrapper where none of its collectives matter."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)


def test_ranks_hash_after_the_step_that_one_of_them_saved(tmp_path: Path) -> None:
    told: list[list[tuple[str, int, str]]] = [[], []]
    ranks = []
    for mine in told:
        tracer = SimpleNamespace(
            directory=str(tmp_path), world_size=2, on=True, backward=None, user_elements=0, native_gradients=None
        )
        wrappers = Wrappers(tracer)  # type: ignore[arg-type]
        module = Wrapped()
        wrappers.add("ddp0", module)

        def record(kind: str, *, mine: list[tuple[str, int, str]] = mine, **detail: Any) -> None:
            if kind == events.PARAMETERS:
                mine.append((kind, detail["number"], detail["at"]))

        looks = StateSampler(tracer, wrappers, Buffers(tracer, record), record)  # type: ignore[arg-type]
        ranks.append((looks, wrappers, torch.optim.SGD(module.parameters(), lr=0.1), module))

    def step(rank: int, at: int) -> None:
        looks, wrappers, optimizer, _ = ranks[rank]
        (wrapper,) = wrappers
        wrapper.steps = at
        looks.before_step(optimizer, [wrapper])

    step(0, 6)
    ranks[0][0].saved()  # after 6 steps, while rank 1 is about to take its sixth
    for at in (5, 6, 7):
        step(1, at)
    step(0, 6)
    step(0, 7)
    assert told == [[("parameters", 6, "save")], [("parameters", 6, "save")]]


class Keeper(nn.Module):
    """`mean` is read in evaluation, `cache` written and read, `other` replaced; `trained` is read in training alone."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "cache", "other", "trained", "constant"):
            self.register_buffer(name, torch.zeros(2))
        self.register_buffer("nothing", None)
        self.register_buffer("table", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor, fails: bool = False) -> torch.Tensor:
        if self.training:
            self.mean += x.mean(0)
            self.trained = self.trained + 1
            self.cache.add_(1)
            self.other.add_(1)
            self.table.add_(1)
        else:
            self.cache.copy_(x[0])
            self.other = self.other + 1
            self.copied = copy.deepcopy(self._buffers)
        if fails:
            raise ValueError("on purpose")
        return x + self.mean + self.table + self.cache + self.other + self.constant


def test_the_buffers_that_an_evaluation_reads() -> None:
    told: list[list[str]] = []

    def record(kind: str, *, hashes: tuple[str, ...], **detail: object) -> None:
        told.append([text.split()[0] for text in hashes])

    wrapper_module, inner = Wrapped(), Keeper()
    wrapper_module.module = inner
    wrapper = Wrapper("ddp0", wrapper_module, None)
    buffers = Buffers(SimpleNamespace(), record)  # type: ignore[arg-type]
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(1))
    buffers.begin(wrapper)
    assert buffers.changed(wrapper) == {}
    inner(x)
    assert set(buffers.changed(wrapper)) == {"mean", "trained", "cache", "other"}
    inner.eval()
    expected = copy.deepcopy(inner)(x)
    before = inner._buffers
    buffers.watch(wrapper, inner)
    assert torch.equal(inner(x), expected)
    assert told == [["mean"]]
    handle = inner.register_forward_pre_hook(lambda module, args: None)
    buffers.watch(wrapper, inner)
    with pytest.raises(ValueError, match="on purpose"):
        inner(x, fails=True)
    handle.remove()
    assert inner._buffers is before and type(inner.copied) is dict and not inner._forward_hooks
    assert torch.equal(inner.other, torch.full((2,), 3.0))  # what an evaluation replaced stays replaced


def test_each_fault_is_told_at_its_line(tmp_path: Path) -> None:
    result = run_traced([*TORCHRUN, WORKER, "--faults"], directory=tmp_path, native="off")
    assert result.exit_code == 0
    found = silent_faults(load_run(tmp_path))
    assert found == silent_faults(load_columns(tmp_path)[0])
    assert all(fault.ranks == (0, 1) and fault.site is not None for fault in found)

    def told(kind: str, line: str, *words: str) -> SilentFault:
        (fault,) = [f for f in found if f.kind == kind and all(word in f.explanation for word in words)]
        assert fault.site is not None and fault.site.line == line_of(line)
        return fault

    expected = [
        told("gradients-differ", "optimizer.step()", "Optimizer step 1 uses gradients of ddp0"),
        told("parameters-differ", "optimizer.step()", "of ddp0 differ", "follows from the gradients"),
        told("optimizer-differs", "optimizer.step()", "different state for ddp1 after optimizer step 2", "after step 1 they were"),
        told("parameters-differ", "optimizer.step()", "of ddp1 differ", "follows from the optimizers"),
        told("optimizer-differs", "optimizer.step()", "lr 0.1 on rank 0; lr 0.2 on rank 1"),
        told("parameters-differ", "optimizer.step()", "of ddp2 differ", "follows from the optimizers"),
        told("parameters-differ", "optimizer.step()", "of ddp3 differ", "when something was saved, after 5 optimizer steps"),
        told("buffers-differ", "# EVALUATE", "evaluated ddp4 after optimizer step 1", f"{line_of('dist.all_reduce(result)')}"),
        told("buffers-differ", "# READ", "evaluated ddp5 after optimizer step 1 with buffers that differ (book)"),
        told("buffers-differ", "# SAVE", "Rank 0 saved ddp6 after optimizer step 3 with its own buffers (book)"),
        told("wrong-factor", "# ACCUMULATE", "divided by 4, while each step accumulates 2 backward passes on each of 2 ranks"),
        told("wrong-factor", "# ON TOP", "multiplied by 2", "by an all-reduce that sums them", "2 times the mean"),
        told("wrong-factor", "# MADE UP", "divided by 2", "1/2 of the mean"),
        told("same-samples", "in part:", "2 of 2 epochs", "a seed that is set in every epoch"),
        told("same-device", "return DistributedDataParallel", "one and the same device (cuda GPU-0)"),
    ]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_what_only_looks_like_a_fault_is_silent_and_no_bit_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run_traced([*TORCHRUN, WORKER], directory=tmp_path, native="off")
    assert result.exit_code == 0
    traced = sorted(re.findall(r"bits \d \w+ [\d.]+", capfd.readouterr().out))
    run = load_run(tmp_path)
    assert silent_faults(run) == silent_faults(load_columns(tmp_path)[0]) == []
    for kind in ("gradients", "optimizer", "parameters", "statistics", "buffers", "factor", "place"):
        assert {rank for rank, _ in run.events_of(kind)} == {0, 1}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    plain = subprocess.run([*resolve(TORCHRUN), WORKER], capture_output=True, text=True, timeout=120, env=environment)
    assert len(traced) == 2 and sorted(re.findall(r"bits \d \w+ [\d.]+", plain.stdout)) == traced
