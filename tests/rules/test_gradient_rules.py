"""DDP107 to DDP110: gradients averaged by hand, parameters without a gradient, graphs that differ, checkpointing; look-alikes.

In a program `# HERE` marks the lines that findings name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules

MINE = ("DDP107", "DDP108", "DDP109", "DDP110")

HEAD = """\
import random
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo")
"""
BY_HAND = HEAD + "net = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
WRAPPED = HEAD + "model = DDP(nn.Linear(4, 1))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

FOUND = {
    ("DDP110", "a sum of each gradient"): BY_HAND + """
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)  # HERE
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "a mean that is divided again"): BY_HAND + """
def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)  # HERE
        p.grad.div_(dist.get_world_size())
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    average_gradients(net)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "divided before and after"): BY_HAND + """
world_size = dist.get_world_size()
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    for p in net.parameters():
        p.grad /= world_size
        dist.all_reduce(p.grad)  # HERE
        p.grad.mul_(1 / world_size)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "on top of DDP"): WRAPPED + """
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # HERE
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "after the step"): BY_HAND + """
for step in range(4):
    optimizer.zero_grad()
    net(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)  # HERE
""",
}  # fmt: skip

QUIET = {
    ("DDP110", "sum and division in a helper"): BY_HAND + """
def average_gradients(model):
    size = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= size
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    average_gradients(net)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "flattened, and divided in the copy back"): BY_HAND + """
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    grads = [p.grad.data for p in net.parameters()]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for buffer, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
        buffer.copy_(synced)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "the mean by the backend"): BY_HAND + """
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "1/N in the loss"): BY_HAND + """
for step in range(4):
    loss = net(torch.randn(8, 4)).mean() / dist.get_world_size()
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "a redundant mean on top of DDP"): WRAPPED + """
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "by hand under no_sync, divided"): WRAPPED + """
for step in range(4):
    with model.no_sync():
        model(torch.randn(8, 4)).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "a tensor-parallel group, a norm and a loss"): WRAPPED + """
group = dist.new_group([0, 1])
for step in range(4):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
    total_norm = torch.stack([p.grad.norm() for p in model.parameters()]).sum()
    dist.all_reduce(total_norm)
    dist.all_reduce(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "inside an autograd function"): WRAPPED + """
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad)
        return grad
for step in range(4):
    Gather.apply(model(torch.randn(8, 4))).mean().backward()
    optimizer.step()
""",
}  # fmt: skip


@pytest.mark.parametrize(("code", "name"), FOUND)
def test_found_at_the_marked_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    text = FOUND[code, name]
    lines = [number for number, row in enumerate(text.splitlines(), 1) if "# HERE" in row]
    context = audited(tmp_path, text)
    found = [f for other in MINE if other in rules() for f in findings(other, context)]
    assert sorted((f.code, f.span.line) for f in found) == [(code, line) for line in lines]
    assert all(f.message.endswith(".") and f.explanation.endswith(".") for f in found)


@pytest.mark.parametrize(("code", "name"), QUIET)
def test_quiet_on_look_alikes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    found = findings(code, audited(tmp_path, QUIET[code, name]))
    assert [(f.code, f.span.line, f.message) for f in found] == []


@pytest.mark.parametrize("code", [code for code in MINE if code in rules()])
def test_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.chdir(tmp_path)
    rule = rules()[code]
    bad, good = audited(tmp_path, rule.bad), audited(tmp_path, rule.good)
    assert {f.code for other in MINE if other in rules() for f in findings(other, bad)} == {code}
    assert [f for other in MINE if other in rules() for f in findings(other, good)] == []
