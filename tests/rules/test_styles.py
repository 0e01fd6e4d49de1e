"""How real code writes distributed training: rank sources, flags, guards, sharding, accumulation, frameworks.

Each program is judged by every rule at the levels warning and error: what is marked `# CODE` at the end of a line is found there,
and nothing else is said.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from found import audited, findings, rules

CODES = (
    "DDP101", "DDP105", "DDP112", "DDP113", "DDP115", "DDP201", "DDP202", "DDP203", "DDP301", "DDP302", "DDP401", "DDP502", "DDP601",
)  # fmt: skip

HEAD = """\
import argparse, contextlib, functools, math, os, random, sys, time
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset
"""
DATA = """
dataset = TensorDataset(torch.randn(64, 4))
def train(model, loader, epochs=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for (x,) in loader:
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
"""
INIT = """
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""
MODEL = """
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

# ---- who is rank 0: each source of the rank guards a collective of one rank

RANK_SOURCES = {
    "environment": "if int(os.environ['RANK']) == 0:\n    dist.barrier()  # DDP201\n",
    "environment with a default": "r = int(os.environ.get('RANK', '0'))\nif not r:\n    dist.barrier()  # DDP201\n",
    "getenv compared as text": "if os.getenv('RANK') == '0':\n    dist.barrier()  # DDP201\n",
    "SLURM": "proc_id = int(os.environ['SLURM_PROCID'])\nif proc_id == 0:\n    dist.barrier()  # DDP201\n",
    "OMPI": "r = int(os.environ['OMPI_COMM_WORLD_RANK'])\nif r < 1:\n    dist.barrier()  # DDP201\n",
    "argparse": """
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
args = parser.parse_args()
args.rank = dist.get_rank()
if args.rank == 0:
    dist.barrier()  # DDP201
""",
    "legacy argument": """
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
if args.local_rank in [-1, 0]:
    dist.barrier()  # DDP201
""",
    "helper with a fallback": """
def get_rank():
    if not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank()
def is_main_process():
    return get_rank() == 0
if is_main_process():
    dist.barrier()  # DDP201
""",
    "helper with arguments": """
def is_primary(args, local=False):
    return args.local_rank == 0 if local else args.rank == 0
args = argparse.Namespace(rank=dist.get_rank(), local_rank=int(os.environ["LOCAL_RANK"]))
if is_primary(args):
    dist.barrier()  # DDP201
""",
    "property of a class": """
class State:
    def __init__(self):
        self.process_index = dist.get_rank()
    @property
    def is_main_process(self):
        return self.process_index == 0
state = State()
if state.is_main_process:
    dist.barrier()  # DDP201
""",
    "dictionary": """
setup = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
if setup["rank"] == 0:
    dist.barrier()  # DDP201
""",
    "returned with others": """
def init():
    return dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
r, w, local = init()
if r == 0:
    dist.barrier()  # DDP201
""",
    "device mesh": """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,))
if mesh.get_rank() == 0:
    dist.barrier()  # DDP201
""",
    "context manager that yields it": """
@contextlib.contextmanager
def sync_workers():
    yield dist.get_rank()
with sync_workers() as worker:
    if worker == 0:
        dist.barrier()  # DDP201
""",
    "compound": "args = argparse.Namespace(save=True)\nif rank == 0 and args.save:\n    dist.barrier()  # DDP201\n",
    "compound by or": "if rank == 0 or rank == 1 and world_size > 2:\n    dist.barrier()  # DDP201\n",
    "membership": "if rank in {-1, 0}:\n    dist.barrier()  # DDP201\n",
    "at most": "if rank <= 0:\n    dist.barrier()  # DDP201\n",
    "remainder": "if rank % 2 == 0:\n    dist.barrier()  # DDP201\n",
    "is": "if rank is 0:\n    dist.barrier()  # DDP201\n",
    "object of rank 0 that a library made": """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs") if rank == 0 else None
if writer is not None:
    dist.barrier()  # DDP201
""",
    "object of rank 0 by an if": """
class Saver:
    pass
saver = None
if rank == 0:
    saver = Saver()
if saver:
    dist.barrier()  # DDP201
""",
    "flag of a configuration object": """
from dataclasses import dataclass
@dataclass
class Config:
    rank: int
    save: bool = True
    @property
    def master(self):
        return self.rank == 0
config = Config(rank=dist.get_rank())
if config.master and config.save:
    dist.barrier()  # DDP201
""",
    "decorator with arguments": """
def on_rank(number):
    def decorate(function):
        @functools.wraps(function)
        def inner(*args):
            if dist.get_rank() == number:
                return function(*args)
        return inner
    return decorate
@on_rank(0)
def report():
    dist.barrier()
report()  # DDP201
""",
    "continue in a loop": """
for step in range(3):
    if rank != 0:
        continue
    dist.barrier()  # DDP201
""",
    "lambda": "main = lambda: dist.get_rank() == 0\nif main():\n    dist.barrier()  # DDP201\n",
    "match": "match rank:\n    case 0:\n        print('first')\n    case _:\n        print('other')\ndist.barrier()\n",
}

# ---- conditions that are the same on all ranks

UNIFORM = {
    "flag by environment": "if 'RANK' in os.environ and 'WORLD_SIZE' in os.environ:\n    dist.barrier()\n",
    "flag by rank": "ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp:\n    dist.barrier()\n",
    "flag by local rank": "if int(os.environ.get('LOCAL_RANK', -1)) >= 0:\n    dist.barrier()\n",
    "flag by size": "if int(os.environ.get('WORLD_SIZE', 1)) > 1:\n    dist.barrier()\n",
    "flag of an option": """
parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_true")
parser.add_argument("--num_gpus", type=int, default=2)
args = parser.parse_args()
if args.distributed or args.num_gpus > 1:
    dist.barrier()
""",
    "flag of a nested setting": """
hparams = {"distributed_run": True}
if hparams["distributed_run"]:
    dist.barrier()
""",
    "always": "if True:  # args.distributed\n    dist.barrier()\n",
    "helper": """
def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True
if is_dist_avail_and_initialized():
    dist.barrier()
""",
    "early return of a helper": """
def synchronize():
    if not dist.is_available():
        return
    if not dist.is_initialized():
        return
    if dist.get_world_size() == 1:
        return
    dist.barrier()
synchronize()
""",
    "both arms": "if rank == 0:\n    print('first')\n    dist.barrier()\nelse:\n    dist.barrier()\n",
    "first and then the others": """
def first(function):
    if rank != 0:
        dist.barrier()
    result = function()
    if rank == 0:
        dist.barrier()
    return result
first(int)
""",
    "same function in both arms": """
def evaluate(loud):
    value = torch.ones(1)
    dist.all_reduce(value)
    return value
if rank == 0:
    evaluate(True)
else:
    evaluate(False)
""",
    "conditional expression, then broadcast": """
name = [time.strftime("%H%M") if rank == 0 else None]
dist.broadcast_object_list(name, src=0)
if name[0] == "0000":
    dist.barrier()
""",
    "world of one": "if rank == 0 and world_size == 1:\n    dist.barrier()\n",
    "group of the ranks": """
group = dist.new_group([0, 1])
if rank in (0, 1):
    dist.barrier(group)
""",
    "seed and device by rank": "torch.manual_seed(rank)\nbackend = 'gloo' if rank >= 0 else 'mpi'\nif backend == 'gloo':\n    dist.barrier()\n",
    "rank of a matrix": """
class Adapter(torch.nn.Module):
    def __init__(self, rank=4):
        super().__init__()
        self.rank = rank
        if rank > 0:
            dist.barrier()
Adapter(8)
""",
    "reduced flag": """
stop = torch.tensor(float(random.random() > 0.9))
dist.all_reduce(stop, op=dist.ReduceOp.MAX)
if stop.item() > 0:
    dist.barrier()
""",
    "gathered": """
counts = [None] * world_size
dist.all_gather_object(counts, random.random())
if max(counts) > 0.5:
    dist.barrier()
""",
    "help of a library that reduces": """
def reduce_tensor(tensor, n):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= n
    return rt
value = reduce_tensor(torch.rand(1), world_size)
if value.item() > 0.5:
    dist.barrier()
""",
    "kind of the data": """
def send(data):
    if isinstance(data, dict):
        return {k: send(v) for k, v in data.items()}
    dist.all_reduce(data)
    return data
for x in DataLoader(torch.randn(8, 4), batch_size=2):
    send(x)
""",
}

# ---- batches left out, loops left

EXITS = {
    "nan": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if torch.isnan(loss):
        continue  # DDP203
    loss.backward()
    optimizer.step()
""",
    "nan after a reduce": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    if torch.isnan(shown):
        continue
    loss.backward()
    optimizer.step()
""",
    "nan through a function that reduces": MODEL
    + """
def average(value):
    value = value.clone().detach()
    dist.all_reduce(value)
    return value.item() / world_size
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if not math.isfinite(average(loss)):
        sys.exit(0)
    loss.backward()
    optimizer.step()
""",
    "not finite by a float": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    loss_value = loss.item()
    if not math.isfinite(loss_value):
        continue  # DDP203
    loss.backward()
    optimizer.step()
""",
    "raise ends the job": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if not math.isfinite(loss.item()):
        raise RuntimeError("loss")
    loss.backward()
    optimizer.step()
""",
    "exit with a failure ends the job": MODEL
    + """
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    if not math.isfinite(loss.item()):
        sys.exit(1)
    loss.backward()
    optimizer.step()
""",
    "reduced by a library": MODEL
    + """
from elsewhere import reduce_dict
for step in range(9):
    losses = {"square": model(torch.randn(8, 4)).pow(2).mean()}
    if not math.isfinite(sum(reduce_dict(losses).values())):
        break
    losses["square"].backward()
    optimizer.step()
""",
    "whether there is a value": MODEL
    + """
class Timer:
    measured = None
    def click(self):
        self.measured = time.time()
timer = Timer()
for step in range(9):
    if timer.measured is None:
        timer.click()
        continue
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    timer.click()
""",
    "scaler": MODEL
    + """
scaler = torch.amp.GradScaler("cpu")
for step in range(9):
    loss = model(torch.randn(8, 4)).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        optimizer.zero_grad()
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    "steps": MODEL
    + """
args = argparse.Namespace(max_steps=5, start=1)
global_step = 0
while True:
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    global_step += 1
    if global_step < args.start:
        continue
    if global_step >= args.max_steps:
        break
""",
    "wall clock": MODEL
    + """
start = time.time()
for step in range(9):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if time.time() - start > 60:
        break  # DDP203
""",
    "flag file": MODEL
    + """
for step in range(9):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if rank == 0 and os.path.exists("stop"):
        break  # DDP203
""",
    "lr": MODEL
    + """
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for step in range(9):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    scheduler.step()
    lr = optimizer.param_groups[0]["lr"]
    if lr < 1e-6:
        break
""",
    "empty batch": MODEL
    + """
for batch in DataLoader(torch.randn(64, 4), batch_size=8, sampler=DistributedSampler(range(64))):
    if (batch > 3).sum() == 0:
        continue  # DDP203
    model(batch).mean().backward()
    optimizer.step()
""",
}

# ---- gradient accumulation

ACCUMULATION = {
    "block under an if": MODEL
    + """
for i in range(8):
    x = torch.randn(8, 4)
    if (i + 1) % 4:
        with model.no_sync():
            model(x).mean().backward()
    else:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "context by a condition": MODEL
    + """
for i in range(8):
    context = model.no_sync() if (i + 1) % 4 else contextlib.nullcontext()
    with context:
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    "bound method": MODEL
    + """
for i in range(8):
    my_context = model.no_sync if (i + 1) % 4 != 0 else contextlib.nullcontext
    with my_context():
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    "function that gives the context": MODEL
    + """
def maybe_no_sync(i, last):
    if i < last:
        return model.no_sync()
    else:
        return contextlib.ExitStack()
for step in range(3):
    for i in range(4):
        with maybe_no_sync(i, 3):
            model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
    "generator": MODEL
    + """
@contextlib.contextmanager
def ddp_sync(module, sync):
    if sync or not isinstance(module, DDP):
        yield
    else:
        with module.no_sync():
            yield
for step in range(3):
    for i in range(4):
        with ddp_sync(model, i == 3):
            loss = model(torch.randn(8, 4)).mean()
            loss.backward()
    optimizer.step()
""",
    "closure": MODEL
    + """
for i in range(8):
    x = torch.randn(8, 4)
    def _forward():
        return model(x).mean()
    def _backward(loss):
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
    if (i + 1) % 4 != 0:
        with model.no_sync():
            _backward(_forward())
    else:
        _backward(_forward())
""",
    "asked again in the callee": MODEL
    + """
class Scaler:
    def __call__(self, loss, need_update):
        loss.backward()
        if need_update:
            optimizer.step()
scaler = Scaler()
for i in range(8):
    need_update = (i + 1) % 4 == 0
    if hasattr(model, "no_sync") and not need_update:
        with model.no_sync():
            scaler(model(torch.randn(8, 4)).mean(), need_update)
    else:
        scaler(model(torch.randn(8, 4)).mean(), need_update)
""",
    "last batch of the loader": MODEL
    + """
loader = DataLoader(torch.randn(60, 4), batch_size=8, sampler=DistributedSampler(range(60)))
for i, x in enumerate(loader):
    is_last = i + 1 == len(loader)
    sync = is_last or (i + 1) % 4 == 0
    with contextlib.nullcontext() if sync else model.no_sync():
        model(x).mean().backward()
    if sync:
        optimizer.step()
""",
    "tail": MODEL
    + """
loader = DataLoader(torch.randn(60, 4), batch_size=8, sampler=DistributedSampler(range(60)))
for i, x in enumerate(loader):
    with contextlib.nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
        model(x).mean().backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        optimizer.step()  # DDP105
""",
    "forward alone inside": MODEL
    + """
for step in range(3):
    for i in range(4):
        if i < 3:
            with model.no_sync():
                loss = model(torch.randn(8, 4)).mean()
        else:
            loss = model(torch.randn(8, 4)).mean()
        loss.backward()
    optimizer.step()
""",
    "backward alone inside": MODEL
    + """
for step in range(3):
    for i in range(4):
        loss = model(torch.randn(8, 4)).mean()
        if i < 3:
            with model.no_sync():  # DDP113
                loss.backward()
        else:
            loss.backward()
    optimizer.step()
""",
    "switch of the loop's own flags": MODEL
    + """
flags = [False, False, True]
for step in range(3):
    for sync in flags:
        model.require_backward_grad_sync = sync
        model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
}

# ---- sharding

SHARDS = {
    "stride": "data = torch.randn(64, 4)[rank::world_size]\ntrain(model, DataLoader(TensorDataset(data), batch_size=8))\n",
    "numpy": "ids = np.arange(rank, 64, world_size)\ntrain(model, DataLoader(torch.utils.data.Subset(dataset, ids), batch_size=8))\n",
    "array split": "ids = np.array_split(np.arange(64), world_size)[rank]\ntrain(model, DataLoader(torch.utils.data.Subset(dataset, ids)))\n",
    "library's shard": """
from datasets import load_dataset
data = load_dataset("rows")["train"].shard(num_shards=world_size, index=rank)
train(model, DataLoader(data, batch_size=8))
""",
    "library's split by node": """
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
data = split_dataset_by_node(load_dataset("rows")["train"], rank=rank, world_size=world_size)
train(model, DataLoader(data, batch_size=8))
""",
    "list of files": """
class Rows(Dataset):
    def __init__(self, files):
        self.files = files
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        return torch.load(self.files[index])
files = sorted(os.listdir("data"))
files = [name for i, name in enumerate(files) if i % world_size == rank]
train(model, DataLoader(Rows(files), batch_size=8))
""",
    "sampler that takes the rank": """
class Strided(torch.utils.data.Sampler):
    def __init__(self, data, rank, world):
        self.data, self.offset, self.step = data, rank, world
    def __iter__(self):
        return iter(range(self.offset, len(self.data), self.step))
    def __len__(self):
        return len(self.data) // self.step
train(model, DataLoader(dataset, sampler=Strided(dataset, rank, world_size)))
""",
    "sampler of a library": """
from timm.data.distributed_sampler import RepeatAugSampler
train(model, DataLoader(dataset, sampler=RepeatAugSampler(dataset)))
""",
    "conditional sampler": """
sampler = DistributedSampler(dataset) if world_size > 1 else None
train(model, DataLoader(dataset, shuffle=(sampler is None), sampler=sampler))
""",
    "sampler of an option": """
args = argparse.Namespace(distributed=True)
if args.distributed:
    sampler = DistributedSampler(dataset)
else:
    sampler = torch.utils.data.RandomSampler(dataset)
train(model, DataLoader(dataset, sampler=torch.utils.data.BatchSampler(sampler, 8, True)))
""",
    "each rank's own seed and draws": """
class Draws(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, _):
        return torch.randn(4)
torch.manual_seed(rank)
train(model, DataLoader(Draws(), batch_size=8))
""",
    "whole": "train(model, DataLoader(dataset, batch_size=8, shuffle=True))  # DDP301\n",
    "whole, made by a function": """
def get_loader(data, batch_size):
    kwargs = {"batch_size": batch_size, "shuffle": True}
    return DataLoader(data, **kwargs)  # DDP301
train(model, get_loader(dataset, 8))
""",
    "whole, in order": "train(model, DataLoader(dataset))  # DDP301\n",
    "subset of all": "part = torch.utils.data.Subset(dataset, range(32))\ntrain(model, DataLoader(part, shuffle=True))  # DDP301\n",
}

# ---- epochs

EPOCHS = {
    "never": "sampler = DistributedSampler(dataset)  # DDP302\ntrain(model, DataLoader(dataset, sampler=sampler), 3)\n",
    "inside the callee": """
def one_epoch(loader, epoch):
    loader.sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    one_epoch(loader, epoch)
""",
    "and": """
sampler = DistributedSampler(dataset) if world_size > 1 else None
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    sampler and sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "hasattr": """
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    if hasattr(loader, "sampler") and isinstance(loader.sampler, DistributedSampler):
        loader.sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "method of the data": """
class Data:
    def __init__(self):
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, sampler=self.sampler)
    def set_epoch(self, epoch):
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)
data = {"train": Data()}
for epoch in range(3):
    data["train"].set_epoch(epoch)
    for (x,) in data["train"].loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "getattr": """
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    getattr(loader.sampler, "set_epoch", lambda _: None)(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
    "while": """
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)
epoch = 0
while epoch < 3:
    sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
    epoch += 1
""",
    "endless loader": """
def forever(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1
batches = forever(DataLoader(dataset, sampler=DistributedSampler(dataset)))
for step in range(20):
    (x,) = next(batches)
    model(x).mean().backward()
    optimizer.step()
""",
    "validation": """
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)
validation = DataLoader(dataset, sampler=DistributedSampler(dataset))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
    with torch.no_grad():
        for (x,) in validation:
            model(x)
""",
    "single pass": "train(model, DataLoader(dataset, sampler=DistributedSampler(dataset)), 1)\n",
    "no shuffle": "train(model, DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False)), 3)\n",
    "always zero": """
sampler = DistributedSampler(dataset)  # DDP302
loader = DataLoader(dataset, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(0)
    for (x,) in loader:
        model(x).mean().backward()
        optimizer.step()
""",
}

# ---- wrappers

WRAPPERS = {
    "helper of the project": """
def smart_ddp(module):
    return DDP(module, find_unused_parameters=True)
net = smart_ddp(torch.nn.Linear(4, 1))
loss = net.module(torch.randn(8, 4)).mean()
loss.backward()  # DDP101
optimizer.step()
""",
    "conditional wrap, raw name for saving": """
net = torch.nn.Linear(4, 1)
without_ddp = net
if world_size > 1:
    net = DDP(net)
    without_ddp = net.module
loss = net(torch.randn(8, 4)).mean()
loss.backward()
if rank == 0:
    torch.save(without_ddp.state_dict(), "net.pt")
""",
    "raw model for the loss": """
net = torch.nn.Linear(4, 1)
if world_size > 1:
    net = DDP(net)
raw_model = net.module if world_size > 1 else net
loss = raw_model(torch.randn(8, 4)).mean()
loss.backward()  # DDP101
optimizer.step()
""",
    "diffusion": """
class Diffusion:
    def training_losses(self, net, x):
        return (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
diffusion = Diffusion()
loss = diffusion.training_losses(model, torch.randn(8, 4))
loss.backward()
optimizer.step()
""",
    "partial": """
compute = functools.partial(lambda net, x: net(x).mean(), model)
compute(torch.randn(8, 4)).backward()
optimizer.step()
""",
    "rank 0 evaluates with BatchNorm, then all meet": """
net = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
net(torch.randn(8, 4)).mean().backward()
optimizer.step()
if rank == 0:
    with torch.no_grad():
        net(torch.randn(8, 4))  # DDP401
dist.barrier()
""",
    "rank 0 evaluates without buffers": """
net = DDP(torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 1)))
for step in range(3):
    net(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    if rank == 0:
        net.eval()
        net(torch.randn(8, 4))
        net.train()
    dist.barrier()
""",
    "method on the wrapper": """
class Net(torch.nn.Module):
    def forward(self, x):
        return x
    def describe(self):
        return "net"
net = DDP(Net())
if rank == 0:
    print(net.describe())  # DDP115
print(net.module.describe())
""",
    "method of what may be inside": """
class Net(torch.nn.Module):
    def forward(self, x):
        return x
    def describe(self):
        return "net"
net = Net()
args = argparse.Namespace(n_gpus=int(sys.argv[1]))
if args.n_gpus > 1:
    net = DDP(net)
inner = net if args.n_gpus == 1 else net.module
print(inner.describe())
if args.n_gpus == 1:
    print(net.describe())
""",
}

# ---- arithmetic of the accumulation

ARITHMETIC = {
    "rounded down": "accumulation_steps = 6 // world_size  # DDP502\n",
    "checked": "accumulation_steps = 6\nassert accumulation_steps % world_size == 0\naccumulation_steps //= world_size\n",
    "start of a search": "global_batch_size = 6\nbatch_avg = global_batch_size // world_size\nprint(range(batch_avg - 2, batch_avg + 2))\n",
}

# ---- devices

DEVICES = {
    "rank": "torch.cuda.set_device(rank)  # DDP601\n",
    "local rank": "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n",
    "remainder": "torch.cuda.set_device(rank % torch.cuda.device_count())\n",
    "SLURM": "torch.cuda.set_device(int(os.environ['SLURM_LOCALID']))\n",
    "SLURM rank": "torch.cuda.set_device(int(os.environ['SLURM_PROCID']))  # DDP601\n",
    "device object": "device = torch.device('cuda', dist.get_rank())  # DDP601\nmodel.to(device)\n",
    "helper": """
def device_of(r):
    return f"cuda:{r}"
torch.cuda.set_device(device_of(dist.get_rank()))  # DDP601
""",
    "node rank times devices": """
def worker(local, ngpus, node_rank):
    r = node_rank * ngpus + local
    torch.cuda.set_device(local)
    DDP(torch.nn.Linear(4, 1).cuda(local), device_ids=[local])
worker(int(os.environ["LOCAL_RANK"]), torch.cuda.device_count(), int(os.environ["GROUP_RANK"]))
""",
    "own view of each process": "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\ntorch.cuda.set_device(0)\n",
}

TABLE = (
    {("rank", name): INIT + text for name, text in RANK_SOURCES.items()}
    | {("same", name): INIT + text for name, text in UNIFORM.items()}
    | {("exit", name): INIT + text for name, text in EXITS.items()}
    | {("accumulation", name): INIT + text for name, text in ACCUMULATION.items()}
    | {("shard", name): INIT + DATA + MODEL + text for name, text in SHARDS.items()}
    | {("epoch", name): INIT + DATA + MODEL + text for name, text in EPOCHS.items()}
    | {("wrapper", name): INIT + MODEL + text for name, text in WRAPPERS.items()}
    | {("arithmetic", name): INIT + text for name, text in ARITHMETIC.items()}
    | {("device", name): INIT + MODEL + text for name, text in DEVICES.items()}
)

# ---- frameworks: whole programs

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
LIGHTNING = """
import lightning as L
class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
FABRIC = """
from lightning.fabric import Fabric
fabric = Fabric(devices=2)
fabric.launch()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True))
"""
FSDP2 = (
    INIT
    + """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
)
FRAMEWORKS = {
    "Accelerate": ACCELERATE
    + """
for epoch in range(3):
    for (x,) in loader:
        with accelerator.accumulate(model):
            loss = model(x).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "net.pt")
""",
    "Accelerate, rank 0 waits": ACCELERATE
    + """
if accelerator.is_main_process:
    accelerator.wait_for_everyone()  # DDP202
""",
    "Accelerate, rank 0 gathers": ACCELERATE
    + """
def report(accelerator, loss):
    if accelerator.is_local_main_process:
        print(accelerator.gather(loss))  # DDP202
report(accelerator, torch.ones(1))
""",
    "Accelerate, rank 0 gathers metrics": ACCELERATE
    + """
if not accelerator.is_main_process:
    sys.exit(1)
print(accelerator.gather_for_metrics(torch.ones(1)))  # DDP202
""",
    "Accelerate, main process first": ACCELERATE
    + """
with accelerator.main_process_first():
    rows = list(range(4))
if accelerator.is_main_process:
    accelerator.print(rows)
""",
    "Accelerate, mean of all": ACCELERATE
    + """
for (x,) in loader:
    loss = model(x).mean()
    mean = accelerator.gather(loss).mean().item()
    if not math.isfinite(mean):
        break
    accelerator.backward(loss)
    optimizer.step()
""",
    "gather of a tensor is no collective": INIT
    + """
if rank == 0:
    print(torch.ones(4).gather(0, torch.tensor([0])))
""",
    "Lightning": LIGHTNING
    + """
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).mean()
        self.log("loss", loss, sync_dist=True)
        if self.global_rank == 0:
            self.print(loss)
        return loss
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(64, 4)), shuffle=True)
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, logged on rank 0": LIGHTNING
    + """
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).mean()
        if self.trainer.is_global_zero:
            self.log("loss", loss, on_epoch=True, sync_dist=True)  # DDP202
        return loss
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, early return": LIGHTNING
    + """
    def on_validation_epoch_end(self):
        if self.global_rank != 0:
            return
        self.log_dict({"x": 1.0}, sync_dist=True)  # DDP202
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, gathers on rank 0": LIGHTNING
    + """
    def on_validation_epoch_end(self):
        if self.global_rank == 0:
            self.all_gather(torch.ones(1))  # DDP202
L.Trainer(devices=2).fit(Line())
""",
    "Lightning, rank_zero_only": LIGHTNING
    + """
    @L.pytorch.utilities.rank_zero_only
    def report(self, value):
        self.log("x", value, rank_zero_only=True)
        print(value)
    def training_step(self, batch, index):
        self.report(1.0)
        return self.layer(batch[0]).mean()
L.Trainer(devices=2).fit(Line())
""",
    "log of another class": INIT
    + """
class Writer:
    def log(self, name, value, sync_dist=False):
        print(name, value)
if rank == 0:
    Writer().log("loss", 1.0, sync_dist=True)
""",
    "Fabric": FABRIC
    + """
for epoch in range(3):
    for index, (x,) in enumerate(loader):
        accumulating = (index + 1) % 4 != 0
        with fabric.no_backward_sync(model, enabled=accumulating):
            fabric.backward(model(x).mean())
        if not accumulating:
            optimizer.step()
            optimizer.zero_grad()
    fabric.barrier()
    if fabric.is_global_zero:
        print(epoch)
""",
    "Fabric, rank 0 waits": FABRIC
    + """
if fabric.global_rank == 0:
    fabric.barrier()  # DDP202
""",
    "HF Trainer": """
from transformers import Trainer, TrainingArguments
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        loss = model(**inputs).loss
        if self.is_world_process_zero():
            print(loss.item())
        return loss
trainer = Own(model=torch.nn.Linear(4, 1), args=TrainingArguments("out"), train_dataset=TensorDataset(torch.randn(64, 4)))
trainer.train()
if trainer.args.process_index == 0:
    trainer.save_state()
""",
    "DeepSpeed": """
import deepspeed
deepspeed.init_distributed()
net = torch.nn.Linear(4, 1)
engine, optimizer, _, scheduler = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={})
loader = DataLoader(TensorDataset(torch.randn(64, 4)), sampler=DistributedSampler(range(64)))
for (x,) in loader:
    loss = engine(x).mean()
    engine.backward(loss)
    engine.step()
print(engine.module.weight, engine.global_steps)
""",
    "FSDP2, switch after the forward": FSDP2
    + """
for i in range(8):
    loss = model(torch.randn(8, 4)).mean()
    model.set_requires_gradient_sync((i + 1) % 4 == 0)
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
    "FSDP2, whole tensors on rank 0": FSDP2
    + """
if rank == 0:
    state = {name: p.full_tensor() for name, p in model.named_parameters()}  # DDP202
""",
    "FSDP2, whole tensors on all": FSDP2
    + """
state = {name: p.full_tensor() for name, p in model.named_parameters()}
if rank == 0:
    torch.save(state, "net.pt")
""",
    "FSDP1": INIT
    + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    with contextlib.nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
        model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        model.clip_grad_norm_(1.0)
        optimizer.step()
""",
    "FSDP1, state on rank 0": INIT
    + """
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Linear(4, 1))
policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
    if rank == 0:
        state = model.state_dict()  # DDP202
""",
    "FSDP1, state on all": INIT
    + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(torch.nn.Linear(4, 1))
state = model.state_dict()
if rank == 0:
    torch.save(state, "net.pt")
""",
    "FSDP2, state on rank 0": FSDP2
    + """
from torch.distributed.checkpoint.state_dict import get_model_state_dict
if rank == 0:
    torch.save(get_model_state_dict(model), "net.pt")  # DDP202
""",
    "metric on rank 0": INIT
    + """
import torchmetrics
accuracy = torchmetrics.Accuracy(task="binary")
accuracy.update(torch.ones(4), torch.ones(4))
if rank == 0:
    print(accuracy.compute())  # DDP202
""",
    "metric that does not sync": INIT
    + """
from torchmetrics.classification import BinaryAccuracy
accuracy = BinaryAccuracy(sync_on_compute=False)
if rank == 0:
    print(accuracy.compute())
""",
    "metric of the project": INIT
    + """
class Accuracy:
    def compute(self):
        return 1.0
if rank == 0:
    print(Accuracy().compute())
""",
    "DeepSpeed, rank 0 saves": """
import deepspeed
deepspeed.init_distributed()
net = torch.nn.Linear(4, 1)
model_engine, optimizer, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={})
if dist.get_rank() == 0:
    model_engine.save_checkpoint("out")  # DDP202
""",
    "DeepSpeed, all save": """
import deepspeed
deepspeed.init_distributed()
net = torch.nn.Linear(4, 1)
model_engine, optimizer, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={})
model_engine.save_checkpoint("out")
if dist.get_rank() == 0:
    torch.save(net.state_dict(), "net.pt")
""",
    "composable replicate": INIT
    + """
from torch.distributed._composable.replicate import replicate
model = replicate(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    model.set_requires_gradient_sync((i + 1) % 4 == 0)
    model(torch.randn(8, 4)).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
print(model.weight, model.in_features)
""",
    "apex": INIT
    + """
from apex.parallel import DistributedDataParallel as ApexDDP
from apex import amp
net, optimizer = amp.initialize(torch.nn.Linear(4, 1), torch.optim.SGD([torch.zeros(1)], lr=0.1), opt_level="O1")
net = ApexDDP(net, delay_allreduce=True)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), sampler=DistributedSampler(range(64)))
for (x,) in loader:
    loss = net(x).mean()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
""",
    "DGL": INIT
    + """
import dgl
graph = dgl.rand_graph(64, 128)
sampler = dgl.dataloading.NeighborSampler([4])
loader = dgl.dataloading.DataLoader(graph, torch.arange(64), sampler, batch_size=8, shuffle=True, use_ddp=True)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for nodes, _, blocks in loader:
        model(blocks[0].srcdata["x"]).mean().backward()
        optimizer.step()
""",
}
TABLE |= {("framework", name): text for name, text in FRAMEWORKS.items()}


@pytest.mark.parametrize("key", list(TABLE), ids="-".join)
def test_every_rule_on_a_style(key: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = HEAD + TABLE[key]
    context = audited(tmp_path, text)
    loud = [f for code in CODES for f in findings(code, context) if f.severity != "info"]
    wanted = {(m[1], number) for number, line in enumerate(text.split("\n"), 1) if (m := re.search(r"# (DDP\d{3})$", line))}
    assert {(f.code, f.span.line) for f in loud} == wanted, [(f.code, f.span.line, f.message) for f in loud]


def test_the_table_asks_rules_that_are_there() -> None:
    assert set(CODES) <= set(rules())
