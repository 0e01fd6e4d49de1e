"""Programs in which the ranks of a collective part; HERE marks the line of the finding."""

from __future__ import annotations

HEAD = """\
import math, os, random, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
world_size = dist.get_world_size()
"""
TRAIN = (
    HEAD
    + """
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=8)
"""
)

FOUND = {
    ("DDP201", "a branch that asks for the length of a list that a loop fills"): TRAIN + """
seen = []
for x in loader:
    seen.append("a batch")
    if len(seen) > 4 and rank == 0:
        dist.barrier()  # HERE
names = []
names.append("first")
if names:
    if rank == 1:
        dist.barrier()  # HERE
""",
    ("DDP202", "a metric that was moved to a device"): TRAIN + """
import torchmetrics
accuracy = torchmetrics.Accuracy(task="binary").to("cpu")
accuracy.update(torch.ones(2), torch.ones(2))
if rank == 0:
    print(accuracy.compute())  # HERE
""",
    ("DDP201", "rank test"): HEAD + """
if rank == 0:
    dist.barrier()  # HERE
""",
    ("DDP201", "early return"): HEAD + """
def save(state):
    if rank != 0:
        return
    torch.save(state, "net.pt")
    dist.barrier()  # HERE
save({})
""",
    ("DDP201", "through a helper"): HEAD + """
def mean(value):
    dist.all_reduce(value)
    return value / world_size
def report(value):
    print(mean(value))
if rank == 0:
    report(torch.ones(1))  # HERE
""",
    ("DDP201", "short circuit"): HEAD + """
def agreed(flag):
    dist.all_reduce(flag)
    return bool(flag)
if rank == 0 and agreed(torch.ones(1)):  # HERE
    print("agreed")
""",
    ("DDP201", "decorator"): HEAD + """
from lightning.pytorch.utilities import rank_zero_only
@rank_zero_only
def report(value):
    dist.all_reduce(value)
    print(value)
report(torch.ones(1))  # HERE
""",
    ("DDP201", "attribute of a class, rank from the environment"): """
import os
import torch.distributed as dist
class Saver:
    def __init__(self):
        self.main = int(os.environ["RANK"]) == 0
    def save(self):
        if self.main:
            print("saved")
            dist.barrier()  # HERE
dist.init_process_group("gloo")
Saver().save()
""",
    ("DDP201", "constructor of the wrapper"): HEAD + """
net = torch.nn.Linear(4, 1)
if rank == 0:
    net = DDP(net)  # HERE
""",
    ("DDP201", "one operation against another"): HEAD + """
value = torch.ones(1)
if rank == 0:
    dist.all_reduce(value, op=dist.ReduceOp.SUM)  # HERE
else:
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
""",
    ("DDP201", "one collective against another"): HEAD + """
value = torch.ones(1)
if rank == 0:
    dist.broadcast(value, 0)  # HERE
else:
    dist.barrier()
""",
    ("DDP201", "first and then with something between"): HEAD + """
if rank != 0:
    dist.barrier()  # HERE
value = torch.ones(1)
dist.all_reduce(value)
if rank == 0:
    dist.barrier()  # AND HERE
""",
    ("DDP201", "this rank's own data"): TRAIN + """
for x in loader:
    positive = (x > 0).sum()
    if positive > 4:
        dist.all_reduce(positive)  # HERE
""",
    ("DDP201", "a group that has more members than get there"): HEAD + """
pair = dist.new_group([0, 1])
if rank == 0:
    dist.barrier(group=pair)  # HERE
""",
    ("DDP201", "one rank here and the other in a branch that excludes it"): HEAD + """
value = torch.ones(1)
if os.environ.get("MODE") == "sum":
    if rank == 0:
        dist.all_reduce(value)  # HERE
else:
    if rank != 0:
        dist.all_reduce(value)  # AND HERE
""",
    ("DDP202", "full tensor of a sharded parameter"): HEAD + """
from torch.distributed.fsdp import fully_shard
net = torch.nn.Linear(4, 1)
fully_shard(net)
if rank == 0:
    state = {name: p.full_tensor() for name, p in net.named_parameters()}  # HERE
""",
    ("DDP202", "MPI in a helper"): HEAD + """
from mpi4py import MPI
def read(path):
    if MPI.COMM_WORLD.Get_rank() == 0:
        data = open(path).read()
        MPI.COMM_WORLD.bcast(len(data))
    else:
        MPI.COMM_WORLD.bcast(None)
def resume(path):
    if rank == 0:
        print(read(path))  # HERE
resume("net.pt")
""",
    ("DDP203", "loss that is not finite, continue"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    if not torch.isfinite(loss):
        continue  # HERE
    loss.backward()
    optimizer.step()
""",
    ("DDP203", "backward under the condition"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    if loss < 100:
        loss.backward()  # HERE
    optimizer.step()
""",
    ("DDP203", "step skipped by a local loss"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    loss.backward()
    if math.isnan(loss.item()):
        optimizer.zero_grad()
        continue  # HERE
    optimizer.step()
    optimizer.zero_grad()
""",
    ("DDP203", "early stop in a helper of a class"): TRAIN + """
class Patience:
    def __init__(self):
        self.best, self.bad = 1e9, 0
    def exhausted(self, value):
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return value > 2 * self.best
patience = Patience()
for epoch in range(3):
    total = 0.0
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if patience.exhausted(total):
        break  # HERE
""",
    ("DDP203", "clock"): TRAIN + """
start = time.time()
for x in loader:
    model(x).mean().backward()
    optimizer.step()
    if time.time() - start > 60:
        break  # HERE
""",
    ("DDP203", "return from the training function by a rank test"): TRAIN + """
def train():
    for i, x in enumerate(loader):
        if rank == 1 and i == 3:
            return  # HERE
        model(x).mean().backward()
        optimizer.step()
train()
""",
    ("DDP203", "exit with success"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    if loss < 0.1:
        sys.exit(0)  # HERE
""",
    ("DDP203", "exit with success by raising"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    if loss < 0.1:
        raise SystemExit(0)  # HERE
""",
    ("DDP203", "exit with success by raising a class"): TRAIN + """
for x in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    if loss < 0.1:
        raise SystemExit  # HERE
""",
}  # fmt: skip
