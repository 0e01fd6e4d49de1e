"""Running totals that are summed over the ranks again (DDP806), in forms that no case has, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

HEAD = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


"""
AGAIN = {
    "a_part_of_a_tensor": """\
stats = torch.zeros(2)
for i in range(6):
    loss = step()
    stats[0] += loss * 8
    stats[1] += 8
    if (i + 1) % 2 == 0:
        dist.all_reduce(stats)
        print(stats[0] / stats[1])
""",
    "a_matrix_of_a_metric_object": """\
class T:
    def __init__(self): self.hist = torch.zeros(3, 3)
    def update(self, p, t):
        self.hist += torch.bincount(3 * t + p, minlength=9).reshape(3, 3)
    def value(self):
        dist.all_reduce(self.hist)
        return self.hist.diag().sum() / self.hist.sum()
t = T()
for epoch in range(3):
    for i in range(2):
        step()
        t.update(torch.randint(0, 3, (8,)), torch.randint(0, 3, (8,)))
    acc = t.value()
""",
    "an_asynchronous_sum": """\
running = torch.tensor(0.0)
for i in range(5):
    running = running + step()
    handle = dist.all_reduce(running, op=dist.ReduceOp.SUM, async_op=True)
    handle.wait()
""",
    "a_sum_for_one_rank": """\
def reduce_in(t):
    dist.reduce(t, dst=0)
    return t
tot = torch.zeros(1)
while True:
    tot += step()
    reduce_in(tot)
    if os.path.exists("stop"): break
""",
    "values_of_a_dict": """\
total = {"loss": torch.zeros(1)}
n = 0
for i in range(3):
    total["loss"] += step()
    n += 1
    for k in total:
        dist.all_reduce(total[k])
""",
}
ONCE = {
    "parameters_and_gradients": """\
# gradient accumulation by hand, params
for i in range(4):
    step()
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= world
        p.grad.add_(0.1)
        dist.all_reduce(p.grad)
        p.grad.div_(world)
""",
    "the_same_tensor_over_and_over": """\
t = torch.ones(1000)
for i in range(5):
    dist.all_reduce(t)
step()
""",
    "a_tensor_made_for_the_sum": """\
class Meter:
    def __init__(self): self.s = 0.; self.n = 0
    def add(self, v): self.s += v; self.n += 1
    def avg(self):
        t = torch.tensor([self.s, self.n])
        dist.all_reduce(t)
        return (t[0] / t[1]).item()
m = Meter()
for i in range(5):
    m.add(step().item())
    print(m.avg())
""",
    "a_total_replaced_after_each_window": """\
tokens = 0
loss_sum = torch.zeros(1)
for i in range(6):
    loss = step()
    loss_sum += loss
    t = torch.tensor(8.); dist.all_reduce(t); tokens += t.item()
    if i % 2 == 1:
        dist.all_reduce(loss_sum)
        print(loss_sum / 2 / world, tokens)
        loss_sum = torch.zeros(1)
""",
    "means_and_parts": """\
a = torch.zeros(2)
for i in range(3):
    a[:] = 0
    a[0] += step()[()]
    dist.all_reduce(a[0:1])
    x = a.to("cpu"); dist.all_reduce(x)
ema = torch.zeros(1)
for i in range(3):
    c = step().reshape(1); dist.all_reduce(c)
    ema.mul_(.9).add_(c, alpha=.1)
loss_g = step(); dist.all_reduce(loss_g); loss_g /= world
tot = loss_g + step(); dist.all_reduce(tot)
""",
}


def codes(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(HEAD + text, encoding="utf-8")
    return [finding.code for finding in audit(["train.py"], Options(select=["DDP806"])).findings]


@pytest.mark.parametrize("name", AGAIN)
def test_a_total_that_is_summed_again_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(AGAIN[name], tmp_path, monkeypatch) == ["DDP806"]


@pytest.mark.parametrize("name", ONCE)
def test_what_is_summed_rightly_is_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(ONCE[name], tmp_path, monkeypatch) == []
