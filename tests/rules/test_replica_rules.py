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
    ("DDP103", "a layer of a Sequential by its place"): HEAD + """
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
model = DDP(net)
model.module[2] = nn.Linear(8, 3)  # HERE
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + TRAIN,
    ("DDP104", "a layer of a Sequential by its place, later"): HEAD + """
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
for p in model[0].parameters():
    p.requires_grad = False
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    if epoch == 2:
        for p in model.module[0].parameters():
            p.requires_grad = True  # HERE
    loss = model(torch.randn(8, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
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
    ("DDP106", "losses kept in a list, a backward each"): PLAIN + """
for step in range(4):
    losses = []
    for view in range(2):
        losses.append(model(torch.randn(8, 4)).mean())
    for loss in losses:
        loss.backward()  # HERE
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
    # requires_grad after the wrap
    ("DDP104", "switched on after the wrap"): HEAD + """
net = Net()
for p in net.body.parameters():
    p.requires_grad = False
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for p in model.module.body.parameters():
    p.requires_grad = True  # HERE
""" + TRAIN,
    ("DDP104", "switched on through the wrapper, all of it"): HEAD + """
net = Net()
net.body.requires_grad_(False)
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model.requires_grad_(True)  # HERE
""" + TRAIN,
    ("DDP104", "one helper for both ways"): HEAD + """
def set_trainable(module, on):
    for p in module.parameters():
        p.requires_grad = on
net = Net()
set_trainable(net.body, False)
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
set_trainable(net.body, True)  # HERE
""" + TRAIN,
    ("DDP104", "a layer switched off"): PLAIN + "net.body.requires_grad_(False)  # HERE\n" + TRAIN,
    ("DDP104", "one parameter switched off, in the loop"): PLAIN + """
for step in range(4):
    model.module.fc.bias.requires_grad = False  # HERE
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    # the module after the wrap
    ("DDP103", "layer replaced through the wrapper"): PLAIN + "model.module.fc = nn.Linear(4, 2)  # HERE\n" + TRAIN,
    ("DDP103", "layer replaced through the kept module, by setattr"): PLAIN + 'setattr(net, "fc", nn.Linear(4, 2))  # HERE\n' + TRAIN,
    ("DDP103", "parameter added"): PLAIN + 'model.module.register_parameter("scale", nn.Parameter(torch.ones(1)))  # HERE\n' + TRAIN,
    ("DDP103", "layer put on the wrapper"): PLAIN + "model.extra = nn.Linear(4, 2)  # HERE\n" + TRAIN,
    ("DDP103", "weights normalised"): PLAIN + "nn.utils.parametrizations.weight_norm(net.fc)  # HERE\n" + TRAIN,
    ("DDP103", "weights tied"): PLAIN + "net.fc.weight = net.body.weight  # HERE\n" + TRAIN,
    ("DDP103", "half precision"): PLAIN + "model.half()  # HERE\n" + TRAIN,
    ("DDP103", "state assigned"): PLAIN + """
model.module.load_state_dict(torch.load("net.pt"), assign=True)  # HERE
""" + TRAIN,
    ("DDP103", "to the CPU and back"): HEAD + """
net = Net().to("cuda")
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for step in range(4):
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
    model.cpu()  # HERE
    torch.save(model.module.state_dict(), "net.pt")
    model.cuda()
""",
    # weights that are not the same
    ("DDP111", "loaded by rank 0 after the wrap"): PLAIN + """
if dist.get_rank() == 0:
    model.load_state_dict(torch.load("last.pt"))  # HERE
""" + TRAIN,
    ("DDP111", "loaded where a decorator lets rank 0 through alone"): PLAIN + """
from lightning_utilities import rank_zero_only
@rank_zero_only
def restore(model, path):
    model.module.load_state_dict(torch.load(path))  # HERE
restore(model, "last.pt")
""" + TRAIN,
    ("DDP111", "loaded from a file of each rank's own"): PLAIN + """
state = torch.load(f"last_{dist.get_rank()}.pt")
net.load_state_dict(state["model"])  # HERE
""" + TRAIN,
    ("DDP111", "written on one rank"): PLAIN + """
if dist.get_rank() == 0:
    with torch.no_grad():
        for p in net.fc.parameters():
            p.data.fill_(0.1)  # HERE
""" + TRAIN,
    ("DDP111", "drawn anew from each rank's stream"): PLAIN + """
torch.manual_seed(10 + dist.get_rank())
net.fc.reset_parameters()  # HERE
""" + TRAIN,
    # what is outside of the wrapper
    ("DDP102", "loss with weights, through a chain of parameters"): PLAIN + """
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(3, 1))
    def forward(self, x):
        return (x - self.proxies).mean()
criterion = Loss()  # HERE
optimizer = torch.optim.SGD(itertools.chain(model.parameters(), criterion.parameters()), lr=0.1)
for step in range(4):
    criterion(model(torch.randn(8, 4))).backward()
    optimizer.step()
""",
    ("DDP102", "temperature in a list of parameters"): PLAIN + """
temperature = nn.Parameter(torch.ones(1))  # HERE
params = list(model.parameters())
params.append(temperature)
optimizer = torch.optim.AdamW([p for p in params if p.requires_grad], lr=0.1)
for step in range(4):
    (model(torch.randn(8, 4)) * temperature).mean().backward()
    optimizer.step()
""",
    ("DDP102", "second network with an optimizer of its own"): PLAIN + """
decoder = nn.Sequential(nn.Linear(1, 4), nn.ReLU())  # HERE
for_decoder = torch.optim.SGD(decoder.parameters(), lr=0.1)
for step in range(4):
    decoder(model(torch.randn(8, 4))).mean().backward()
    optimizer.step()
    for_decoder.step()
""",
}  # fmt: skip

QUIET = {
    ("DDP111", "experts of each rank"): PLAIN + """
for parameter in model.module.fc.parameters():
    parameter.skip_allreduce = True
model.module.load_state_dict(torch.load(f"experts-{dist.get_rank()}.pt"))
""" + TRAIN,
    ("DDP103", "a layer of a Sequential before the wrap"): HEAD + """
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
net[2] = nn.Linear(8, 3)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + TRAIN,
    ("DDP104", "frozen before the wrap and left so"): HEAD + """
net = Net()
net.body.requires_grad_(False)
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model.module.fc.requires_grad_(True)
""" + TRAIN,
    ("DDP104", "switched off with find_unused_parameters"): HEAD + """
net = Net()
model = DDP(net, find_unused_parameters=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net.body.requires_grad_(False)
""" + TRAIN,
    ("DDP104", "a teacher that is wrapped and only run forward"): PLAIN + """
teacher = DDP(Net())
for p in teacher.parameters():
    p.requires_grad = False
""" + TRAIN,
    ("DDP104", "switched on before the wrap already"): HEAD + """
net = Net()
net.body.requires_grad_(False)
net.body.requires_grad_(True)
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net.body.requires_grad_(True)
""" + TRAIN,
    ("DDP104", "off for an attack on the input, on again before the next backward"): PLAIN + """
for step in range(4):
    net.body.requires_grad_(False)
    with torch.no_grad():
        model(torch.randn(8, 4))
    net.body.requires_grad_(True)
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    ("DDP104", "after training, for export"): PLAIN + TRAIN + "net.body.requires_grad_(False)\n",
    ("DDP103", "changed before the wrap"): HEAD + """
net = Net()
net.fc = nn.Linear(4, 2)
nn.utils.parametrizations.weight_norm(net.fc)
net.half()
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
""" + TRAIN,
    ("DDP103", "wrapped again after the change"): PLAIN + """
net.fc = nn.Linear(4, 2)
model = DDP(net)
""" + TRAIN,
    ("DDP103", "to the device that it is on"): HEAD + """
import os
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = DDP(Net().to(device), device_ids=[device])
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + TRAIN,
    ("DDP103", "loaded in place, a buffer and an activation set"): PLAIN + """
model.module.load_state_dict(torch.load("net.pt"))
net.act = nn.GELU()
net.register_buffer("mean", torch.zeros(4))
""" + TRAIN,
    ("DDP103", "half precision for export, after training"): PLAIN + TRAIN + "model.module.half().cpu()\n",
    ("DDP103", "a copy is moved"): PLAIN + """
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    copy.deepcopy(model.module).half()
""",
    ("DDP111", "loaded by rank 0 before the wrap"): HEAD + """
net = Net()
if dist.get_rank() == 0:
    net.load_state_dict(torch.load("last.pt"))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + TRAIN,
    ("DDP111", "loaded by all after the wrap, each to its device"): PLAIN + """
import os
rank = int(os.environ["LOCAL_RANK"])
model.module.load_state_dict(torch.load("last.pt", map_location=f"cuda:{rank}"))
""" + TRAIN,
    ("DDP111", "loaded by both arms"): PLAIN + """
if dist.get_rank() == 0:
    model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
else:
    model.module.load_state_dict(torch.load("last.pt", map_location="cuda"))
""" + TRAIN,
    ("DDP111", "a moving average on rank 0"): PLAIN + """
average = copy.deepcopy(net)
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        for mine, its in zip(average.parameters(), net.parameters()):
            mine.data.mul_(0.9).add_(its.data, alpha=0.1)
""",
    ("DDP111", "gradients written on rank 0 to look at them"): PLAIN + """
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        for p in net.parameters():
            p.grad.zero_()
""",
    ("DDP102", "child of what is wrapped, optimizer over the parts"): HEAD + """
class Whole(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.parts = nn.ModuleList([a, b])
    def forward(self, x):
        return self.parts[1](self.parts[0](x))
a, b = Net(), nn.Linear(1, 1)
model = DDP(Whole(a, b))
optimizer = torch.optim.SGD(list(a.parameters()) + list(b.parameters()), lr=0.1)
""" + TRAIN,
    ("DDP102", "loss without weights"): PLAIN + """
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.1)
""" + TRAIN,
    ("DDP102", "classes split over the ranks"): PLAIN + """
class PartialHead(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, 1))
    def forward(self, x):
        return x @ self.weight.t()
head = PartialHead(1000 // dist.get_world_size())
for_head = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(4):
    head(model(torch.randn(8, 4))).mean().backward()
    optimizer.step()
    for_head.step()
""",
    ("DDP102", "two wrappers"): PLAIN + """
other = DDP(Net())
optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": other.parameters()}], lr=0.1)
for step in range(4):
    other(model(torch.randn(8, 4)).expand(-1, 4)).mean().backward()
    optimizer.step()
""",
    ("DDP102", "no wrapper in a run of one process"): HEAD + """
net, head = Net(), nn.Linear(1, 1)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    head(net(torch.randn(8, 4))).mean().backward()
    optimizer.step()
""",
    ("DDP106", "summed"): PLAIN + """
for step in range(4):
    loss = model(torch.randn(8, 4)).mean() + model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
""",
    ("DDP106", "kept in a list and summed"): PLAIN + """
for step in range(4):
    losses = []
    for view in range(2):
        losses.append(model(torch.randn(8, 4)).mean())
    sum(losses).backward()
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
