"""DDP107 to DDP110: gradients averaged by hand, parameters without a gradient, graphs that differ, checkpointing; look-alikes.

In a program `# HERE` marks the lines that findings name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules
from gradient_programs import BY_HAND, FOUND, HEAD, LOOP, NET, WRAPPED

MINE = ("DDP107", "DDP108", "DDP109", "DDP110")

QUIET = {
    ("DDP107", "a static graph whose first backward is synchronised"): HEAD + """
model = DDP(nn.Linear(4, 1), static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    if i % 4:
        with model.no_sync():
            model(torch.randn(8, 4)).mean().backward()
    else:
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
""",
    ("DDP107", "a static graph after a synchronised step"): HEAD + """
from contextlib import nullcontext
model = DDP(nn.Linear(4, 1), static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 4)).mean().backward()
for i in range(8):
    with nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    ("DDP110", "sums that are divided where their handles are waited for"): BY_HAND + """
class Reducer:
    def __init__(self):
        self.pending = []
    def start(self, tensor):
        self.pending.append((dist.all_reduce(tensor, async_op=True), tensor))
    def finish(self):
        for work, tensor in self.pending:
            work.wait()
            tensor.div_(dist.get_world_size())
        self.pending.clear()
reducer = Reducer()
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    for p in net.parameters():
        reducer.start(p.grad)
    reducer.finish()
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP109", "find_unused_parameters"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        return self.head(self.body(x)) if (y > 0).any() else self.body(x)
model = DDP(Net(), find_unused_parameters=True)
""" + LOOP,
    ("DDP109", "an anchor in the other arm"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        x = self.body(x)
        if len(y[y > 0]) == 0:
            return 0.0 * self.head(x).sum()
        return self.head(x).sum()
model = DDP(Net())
""" + LOOP,
    ("DDP109", "one stream on all ranks"): NET + """
    def forward(self, x, y):
        x = self.body(x)
        for layer in self.layers:
            if random.random() > self.p:
                x = layer(x)
        return self.head(x)
random.seed(1)
model = DDP(Net())
""" + LOOP,
    ("DDP109", "a flag that all ranks share"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        some = (y > 0).sum()
        dist.all_reduce(some, op=dist.ReduceOp.MAX)
        x = self.body(x)
        if some > 0:
            return self.head(x)
        return x
model = DDP(Net())
""" + LOOP,
    ("DDP109", "a frozen part, and a part without parameters"): NET + """
        self.drop = nn.Dropout(0.1)
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        if (y > 0).any():
            x = self.drop(self.body(x))
        return self.head(x)
net = Net()
net.body.requires_grad_(False)
model = DDP(net)
""" + LOOP,
    ("DDP108", "used by another method that the forward calls, by index and in a Sequential"): HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.stack = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.table = nn.Embedding(4, 4)
        self.maps = {"a": self.stack}
        self.bias = nn.Parameter(torch.zeros(4))
    def inner(self, x):
        return self.layers[0](x) + self.layers[-1](x)
    def forward(self, x, y):
        return self.maps["a"](self.inner(x)) @ self.table.weight + self.bias
model = DDP(Net())
""" + LOOP,
    ("DDP108", "made in one of several arms, and only where an option says so"): HEAD + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--pool", default="mean")
parser.add_argument("--side", action="store_true")
args = parser.parse_args()
class Net(nn.Module):
    def __init__(self, pool, side):
        super().__init__()
        self.side_on = side
        if pool == "mean":
            self.pool = nn.Linear(4, 4)
        elif pool == "wide":
            self.pool = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
        else:
            raise ValueError(pool)
        if side:
            self.side = nn.Linear(4, 4)
    def forward(self, x, y):
        x = self.pool(x)
        if self.side_on:
            x = x + self.side(x)
        return x
model = DDP(Net(args.pool, args.side))
""" + LOOP,
    ("DDP108", "all children by children()"): HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x, y):
        for child in self.children():
            x = child(x)
        return x
model = DDP(Net())
""" + LOOP,
    ("DDP108", "frozen, and a subclass of a library's model"): HEAD + """
from transformers import PreTrainedModel
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        for p in self.b.parameters():
            p.requires_grad = False
    def forward(self, x, y):
        return self.a(x)
class Large(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.encoder, self.lm_head = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x, y):
        return self.encoder(x)
model, other = DDP(Plain()), DDP(Large(None))
other(torch.ones(4), None).sum().backward()
""" + LOOP,
    ("DDP107", "each of a list once, and arms of a condition"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        if self.training:
            x = checkpoint(self.body, x, use_reentrant=True)
        else:
            x = self.body(x)
        return self.head(x)
model = DDP(Net())
""" + LOOP,
    ("DDP107", "not re-entrant, static graph"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        for _ in range(3):
            x = checkpoint(self.body, x, use_reentrant=False)
        return self.head(x)
class Static(Net):
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        for _ in range(3):
            x = checkpoint(self.body, x, use_reentrant=True)
        return self.head(x)
model, other = DDP(Net(), find_unused_parameters=True), DDP(Static(), static_graph=True)
other(torch.ones(4), None).sum().backward()
""" + LOOP,
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
    ("DDP110", "a sum of losses that are sums, inside of the model"): BY_HAND + """
class Loss(nn.Module):
    def forward(self, x, y):
        return nn.functional.cross_entropy(x, y, reduction="sum")
loss_of = Loss()
for step in range(4):
    loss_of(net(torch.randn(8, 4)), torch.zeros(8).long()).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP110", "micro-batches that get fewer with more ranks"): BY_HAND + """
grad_accum_steps = 8 // dist.get_world_size()
grad_scale = 1 / grad_accum_steps
max_length = 4096 // (grad_accum_steps * dist.get_world_size())
for step in range(4):
    for micro in range(grad_accum_steps):
        (net(torch.randn(8, 4)).mean() * grad_scale).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
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
