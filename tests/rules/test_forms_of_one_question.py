"""One question in several forms of code: a rule asks what a value is, and not how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings

HEAD = """\
import random
import numpy
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""
CONDITION = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)

    def forward(self, x):
        y = self.a(x)
        {}
            y = y + self.b(x)
        return y


dist.init_process_group("gloo")
data = torch.utils.data.TensorDataset(torch.randn(20, 4))
loader = torch.utils.data.DataLoader(data, 4, sampler=torch.utils.data.DistributedSampler(data))
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
HANDLER = """
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    optimizer.zero_grad()
    try:
        value = work(step)
    except {}:
        continue
    model(torch.randn(8, 4) * value).sum().backward()
    optimizer.step()
"""
REDUCTION = """
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
size = dist.get_world_size()
for step in range(9):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    {}
    optimizer.step()
"""
# By rule: the program, forms in which it has the hazard, and forms in which it has not.
FORMS: dict[str, tuple[str, list[str], list[str]]] = {
    "DDP109": (
        CONDITION,
        [
            "if x.shape[0] == 0:",
            "n = len(x)\n        if not n:",
            "if 0 == x.numel():",
            "if x.sum() > 3:",
            "s = x.view(x.size(0), -1).sum()\n        if s > 3:",
            "big = (x > 3).any()\n        if big:",
            "chance = numpy.random.rand()\n        if chance > 0.5:",
            "from numpy.random import rand\n        if rand() > 0.5:",
        ],
        ["if x.shape[0] > 3:", "n = x.shape[0]\n        if n > 3:", "if x.size(dim=0) > 3:", "if isinstance(x, list):"],
    ),
    "DDP204": (
        HANDLER,
        ["ValueError", "(ImportError, ValueError)", "Exception as error", "torch.cuda.OutOfMemoryError"],
        ["ImportError", "(ImportError, AttributeError)", "AttributeError as error"],
    ),
    "DDP110": (
        REDUCTION,
        [
            "for w in model.parameters():\n        g = w.grad\n        dist.all_reduce(g)",
            "buffer = torch.cat([q.grad.flatten() for q in model.parameters()])\n    dist.all_reduce(buffer)",
            "for p in model.parameters():\n        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)",
        ],
        [
            "for w in model.parameters():\n        g = w.grad\n        dist.all_reduce(g)\n        g.div_(size)",
            "for p in model.parameters():\n        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)",
            "for p in model.parameters():\n        dist.all_reduce(p.grad)\n        p.grad.mul_(1 / size)",
            "for p in model.parameters():\n        dist.all_reduce(p.grad)\n        p.grad *= 1 / size",
        ],
    ),
}
CASES = [
    (code, form, hazard)
    for code, (_, *both) in FORMS.items()
    for hazard, forms in zip((True, False), both, strict=True)
    for form in forms
]


@pytest.mark.parametrize(("code", "form", "hazard"), CASES)
def test_a_form_is_judged_by_what_it_does(
    code: str, form: str, hazard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bool(findings(code, audited(tmp_path, HEAD + FORMS[code][0].format(form)))) == hazard
