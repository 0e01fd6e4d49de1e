"""Programs whose gradients are not what they should be; HERE marks the line of the finding."""

from __future__ import annotations

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
NET = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.p = 0.1
"""
)
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(torch.load("data.pt"), batch_size=8):
    model(x, y).mean().backward()
    optimizer.step()
"""
WRAPPED = HEAD + "model = DDP(nn.Linear(4, 1))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

FOUND = {
    ("DDP107", "a static graph whose first backward is not synchronised"): HEAD + """
model = DDP(nn.Linear(4, 1), static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    if (i + 1) % 4:
        with model.no_sync():
            model(torch.randn(8, 4)).mean().backward()  # HERE
    else:
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
""",
    ("DDP110", "sums in flight that nothing divides"): BY_HAND + """
for step in range(4):
    net(torch.randn(8, 4)).mean().backward()
    pending = []
    for p in net.parameters():
        pending.append(dist.all_reduce(p.grad, async_op=True))  # HERE
    for work in pending:
        work.wait()
    optimizer.step()
    optimizer.zero_grad()
""",
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
    # graphs that differ
    ("DDP109", "no targets in the batch"): NET + """
    def forward(self, x, y):
        x = self.body(x)
        for layer in self.layers:
            x = layer(x)
        if (y > 0).any():  # HERE
            return self.head(x)
        return x
model = DDP(Net())
""" + LOOP,
    ("DDP109", "conditional expression in a method"): NET + """
    def features(self, x):
        return self.body(x) if x.sum() > 0 else x  # HERE
    def forward(self, x, y):
        x = self.features(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
model = DDP(Net())
""" + LOOP,
    ("DDP109", "layers dropped at random"): NET + """
    def forward(self, x, y):
        x = self.body(x)
        for layer in self.layers:
            if torch.rand(()) > self.p:  # HERE
                x = layer(x)
        return self.head(x)
torch.manual_seed(dist.get_rank())
model = DDP(Net())
""" + LOOP,
    # never used
    ("DDP108", "list of layers, without a loop over it"): HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4)])  # HERE
        self.scale = nn.Parameter(torch.ones(1))  # HERE
    def forward(self, x, y):
        return self.body(x)
model = DDP(Net())
""" + LOOP,
    # checkpoints
    ("DDP107", "same block twice by default"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        x = checkpoint(self.body, x)
        x = checkpoint(self.body, x)  # HERE
        return self.head(x)
model = DDP(Net())
""" + LOOP,
    ("DDP107", "a closure in a loop"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        def run(inner):
            return self.body(inner).relu()
        for _ in range(4):
            x = checkpoint(run, x, use_reentrant=True)  # HERE
        return self.head(x)
model = DDP(Net())
""" + LOOP,
    ("DDP107", "with find_unused_parameters"): NET + """
    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        x = checkpoint(self.body, x, use_reentrant=True)  # HERE
        return self.head(x)
model = DDP(Net(), find_unused_parameters=True)
""" + LOOP,
}  # fmt: skip
