"""DDP102 to DDP104, DDP106 and DDP111: what makes gradients or replicas differ though nothing fails, and the look-alikes.

In a program `# HERE` marks the lines that findings name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules

MINE = ("DDP102", "DDP103", "DDP104", "DDP106", "DDP111")

HEAD = """\
import copy
import itertools
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.fc = nn.Linear(4, 1)
    def forward(self, x):
        return self.fc(self.act(self.body(x)))

dist.init_process_group("gloo")
"""
PLAIN = HEAD + "net = Net()\nmodel = DDP(net)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
TRAIN = """
for step in range(4):
    loss = model(torch.randn(8, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

FOUND = {
    ("DDP106", "two forwards, two backwards"): PLAIN + """
for step in range(4):
    a, b = model(torch.randn(8, 4)).mean(), model(torch.randn(8, 4)).mean()
    optimizer.zero_grad()
    a.backward()
    b.backward()  # HERE
    optimizer.step()
""",
    ("DDP106", "with a scaler, in helpers"): PLAIN + """
scaler = torch.amp.GradScaler("cpu")
def forward_pass(model, x):
    return model(x).mean()
def backward_pass(loss):
    scaler.scale(loss).backward()  # HERE
for step in range(4):
    first = forward_pass(model, torch.randn(8, 4))
    second = forward_pass(model, torch.randn(8, 4))
    backward_pass(first)
    backward_pass(second)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
    ("DDP106", "graph kept for a second loss"): PLAIN + """
for step in range(4):
    out = model(torch.randn(8, 4))
    out.mean().backward(retain_graph=True)
    out.pow(2).mean().backward()  # HERE
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP106", "an auxiliary loss under a condition"): PLAIN + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--auxiliary", action="store_true", default=True)
args = parser.parse_args()
for step in range(4):
    out = model(torch.randn(8, 4))
    out.mean().backward(retain_graph=True)
    if args.auxiliary:
        out.pow(2).mean().backward()  # HERE
    optimizer.step()
    optimizer.zero_grad()
""",
}  # fmt: skip

QUIET = {
    ("DDP106", "summed"): PLAIN + """
for step in range(4):
    loss = model(torch.randn(8, 4)).mean() + model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
""",
    ("DDP106", "forward and backward in turn"): PLAIN + """
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    ("DDP106", "one of two losses, by a condition"): PLAIN + """
for step in range(4):
    out = model(torch.randn(8, 4))
    if step % 2:
        out.mean().backward()
    else:
        out.pow(2).mean().backward()
    optimizer.step()
""",
    ("DDP106", "two wrappers, one backward each"): PLAIN + """
other = DDP(Net())
for_other = torch.optim.SGD(other.parameters(), lr=0.1)
for step in range(4):
    a, b = model(torch.randn(8, 4)).mean(), other(torch.randn(8, 4)).mean()
    a.backward()
    b.backward()
    optimizer.step()
    for_other.step()
""",
    ("DDP106", "the first of two under no_sync"): PLAIN + """
for step in range(4):
    with model.no_sync():
        a = model(torch.randn(8, 4)).mean()
    b = model(torch.randn(8, 4)).mean()
    a.backward()
    b.backward()
    optimizer.step()
""",
    ("DDP106", "reduced by the program"): PLAIN + """
for step in range(4):
    out = model(torch.randn(8, 4))
    out.mean().backward(retain_graph=True)
    out.pow(2).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
""",
    ("DDP106", "one backward in a loop over batches"): PLAIN + """
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
for epoch in range(2):
    for x in loader:
        loss = model(x).mean()
        loss.backward()
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
