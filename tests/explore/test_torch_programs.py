"""What torch's own objects are in an interpreted run: data sets, samplers, containers, modules and tensors, held to what torch does.

A program calls `send` with numbers from 1 on; torch runs it here, and in the prediction each is the size of one reduction.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted
from torch_module_programs import MODULES

SEND = """
from torch.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler,
    SequentialSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler, random_split)
def send(n):
    dist.all_reduce(torch.ones(n))
"""

DATA = {
    "parts of a data set": """
data = TensorDataset(torch.zeros(23, 4), torch.zeros(23))
for part in random_split(data, [0.5, 0.3, 0.2]) + random_split(data, [20, 3]) + random_split(data, (0.9, 0.1)):
    send(len(part))
send(len(Subset(data, range(5))) + len(Subset(data, indices=[1, 2])))
send(len(ConcatDataset([data, Subset(data, [0])])))
send(len(ConcatDataset((data, data))))
x, y = Subset(data, [0, 1])[0]
send(x.numel() + y.dim() + 1)
(x, y), = random_split(data, [23])[0][0],
send(x.shape[0])
""",
    "batches and the rest": """
data = TensorDataset(torch.zeros(11, 3), torch.zeros(11, dtype=torch.int64))
for options in ({}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": 20}, {"batch_size": 11}):
    loader = DataLoader(data, **options)
    send(len(loader))
    for x, y in loader:
        send(x.numel() + y.numel() + 10 * (y.dtype == torch.int64))
send(len(DataLoader(data, batch_size=None)))
send(len(DataLoader(data, 5).dataset) + DataLoader(data, 5).batch_size)
send(len(DataLoader(data, 4, sampler=SubsetRandomSampler([1, 2, 3, 4, 5]))))
send(len(DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, False))))
send(len(DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), batch_size=4, drop_last=True))))
send(len(BatchSampler(range(9), 2, False)) * 10 + len(BatchSampler(range(9), 2, True)))
""",
    "samples of all kinds": """
class Rows(Dataset):
    def __init__(self, sample, n=5):
        self.sample, self.n = sample, n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return self.sample
for sample in (torch.zeros(3), 7, 2.5, True):
    for batch in DataLoader(Rows(sample), batch_size=2):
        send(batch.numel() + 10 * (batch.dtype == torch.int64) + 20 * (batch.dtype == torch.float64))
for a, b in DataLoader(Rows((torch.zeros(3), 4)), 2):
    send(a.shape[0] + 10 * a.shape[1] + b.shape[0])
for batch in DataLoader(Rows({"ids": torch.zeros(4, dtype=torch.int32), "n": 1.0}), batch_size=3):
    send(batch["ids"].numel() + batch["n"].numel() + len(batch))
for a, (b, c) in DataLoader(Rows([torch.zeros(2), (1, torch.zeros(3))]), 5):
    send(a.numel() + b.numel() + c.numel())
""",
    "a collate function": """
class Rows(Dataset):
    def __len__(self):
        return 7
    def __getitem__(self, i):
        return torch.zeros(3), 1
def stacked(rows):
    return torch.stack([x for x, _ in rows]), len(rows)
for x, n in DataLoader(Rows(), batch_size=3, collate_fn=stacked):
    send(x.numel() + 10 * n)
""",
    "data without a length": """
class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        for i in range(self.n):
            yield torch.zeros(2), i
for n, drop_last in ((5, False), (5, True), (4, False), (1, False)):
    for x, y in DataLoader(Stream(n), batch_size=2, drop_last=drop_last):
        send(x.numel() + 10 * y.numel())
""",
    "lists as data": """
send(1 + [rows[0] for rows in DataLoader(range(1), collate_fn=lambda rows: rows)][0])
send(len(DataLoader([1, 2, 3], batch_size=2)))
for batch in DataLoader([1, 2, 3], batch_size=2):
    send(batch.numel())
for batch in DataLoader(range(5), batch_size=3):
    send(batch.numel() + 10 * (batch.dtype == torch.int64))
for batch in DataLoader(torch.zeros(5, 2), batch_size=3):
    send(batch.numel())
""",
    "samplers": """
data = TensorDataset(torch.zeros(11, 3))
send(len(RandomSampler(data)) + len(RandomSampler(data, num_samples=4)) + len(RandomSampler(data, True, 5)))
send(len(WeightedRandomSampler([1.0, 2.0, 3.0], 9)) + len(WeightedRandomSampler(weights=[1.0] * 4, num_samples=2)))
send(len(SubsetRandomSampler(range(4))))
send(sum(SequentialSampler(data)) + len(SequentialSampler(data)))
send(sum(1 for _ in RandomSampler(data)))
""",
    "distributed samplers": """
data = TensorDataset(torch.zeros(11, 3))
for options in ({}, {"shuffle": False}, {"drop_last": True}, {"seed": 5}, {"shuffle": False, "drop_last": True}):
    for r in (0, 2):
        sampler = DistributedSampler(data, num_replicas=3, rank=r, **options)
        send(len(sampler) * 10 + sampler.num_samples)
        send(sampler.total_size)
        for epoch in (0, 3):
            sampler.set_epoch(epoch)
            for place, index in enumerate(sampler):
                send(1 + index + 11 * place)
send(sampler.epoch + sampler.num_replicas + sampler.rank)
for bad in ({"num_replicas": 2, "rank": 2}, {"num_replicas": 2, "rank": -1}):
    try:
        DistributedSampler(data, **bad)
    except ValueError:
        send(5)
try:
    DataLoader(data, shuffle=True, sampler=sampler)
except ValueError:
    send(6)
""",
}


GRADIENTS = {
    "hooks around a forward": """
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
counts = []
def before(module, args):
    counts.append(1)
def changed(module, args):
    return (torch.cat([args[0], args[0]]),)
def after(module, args, output):
    counts.append(output.shape[0])
    return torch.cat([output, output])
def with_names(module, args, kwargs):
    counts.append(len(kwargs) + 7)
handles = [net.register_forward_pre_hook(before), net.register_forward_hook(after)]
send(net(torch.zeros(4, 2)).shape[0])
third = net.register_forward_pre_hook(changed)
send(net(torch.zeros(4, 2)).shape[0])
for handle in handles:
    handle.remove()
send(net(torch.zeros(4, 2)).shape[0])
third.remove()
send(net(torch.zeros(4, 2)).shape[0])
net.register_forward_pre_hook(with_names, with_kwargs=True)
net(torch.zeros(1, 2))
for count in counts:
    send(count)
""",
    "where gradients are taken": """
@torch.no_grad()
def without():
    return 1 + torch.is_grad_enabled()
@torch.enable_grad()
def with_it():
    return 1 + torch.is_grad_enabled()
@torch.inference_mode()
def inference():
    return 1 + torch.is_grad_enabled()
send(without()); send(with_it()); send(inference())
decorate = torch.no_grad()
@decorate
def also_without():
    return 1 + torch.is_grad_enabled()
send(also_without())
@torch.set_grad_enabled(False)
def switched():
    return 1 + torch.is_grad_enabled()
send(switched())
with torch.no_grad():
    send(with_it())
    send(1 + torch.is_grad_enabled())
    with torch.enable_grad():
        send(1 + torch.is_grad_enabled())
torch.set_grad_enabled(False)
send(1 + torch.is_grad_enabled())
torch.set_grad_enabled(True)
send(1 + torch.is_grad_enabled())
w = nn.Parameter(torch.ones(3))
y = w * 2
send(1 + y.requires_grad + 2 * w.requires_grad + 4 * y.detach().requires_grad + 8 * torch.ones(2).requires_grad)
with torch.no_grad():
    z = w * 2
send(1 + z.requires_grad)
""",
    "functions with a backward of their own": """
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        return torch.cat([x] * n)
    @staticmethod
    def backward(ctx, grad):
        return grad, None
class Both(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x, x.sum(0)
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass
    @staticmethod
    def backward(ctx, a, b):
        return a
send(Doubled.apply(torch.zeros(3, 2), 4).numel())
a, b = Both.apply(torch.zeros(3, 2))
send(a.numel() * 10 + b.numel())
""",
    "where gradients are taken in a backward of one's own": """
class Told(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        send(1 + torch.is_grad_enabled())
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        send(1 + torch.is_grad_enabled())
        return grad
w = nn.Parameter(torch.ones(3))
Told.apply(w).sum().backward()
send(1 + torch.is_grad_enabled())
def grads():
    return 1 + torch.is_grad_enabled()
without, with_it = torch.no_grad()(grads), torch.enable_grad()(lambda: 1 + torch.is_grad_enabled())
send(without())
with torch.no_grad():
    send(with_it())
""",
    "forwards that run again in the backward": """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as again
def run(x, y, z=None):
    send(x.numel() + 10 * y.numel() + 100 * (z is not None))
    return x
send(checkpoint(run, torch.zeros(2), torch.zeros(3), use_reentrant=False).numel())
send(again.checkpoint(run, torch.zeros(4), torch.zeros(5), torch.zeros(1), use_reentrant=False).numel())
send(checkpoint(run, torch.zeros(4), y=torch.zeros(5), use_reentrant=False, preserve_rng_state=False).numel())
send(checkpoint_sequential(nn.Sequential(nn.Linear(2, 5), nn.Linear(5, 3)), 2, torch.zeros(4, 2), use_reentrant=False).numel())
send(checkpoint_sequential([nn.Linear(2, 5), nn.Linear(5, 4)], segments=1, input=torch.zeros(4, 2), use_reentrant=False).numel())
""",
    "optimizers": """
net = nn.Linear(2, 3)
for optimizer in (torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.Adam(net.parameters(), 0.5), torch.optim.AdamW([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.25}], lr=0.5)):
    send(len(optimizer.param_groups))
    for group in optimizer.param_groups:
        send(int(group["lr"] * 100) + len(group["params"]))
optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.75})
send(1 + isinstance(optimizer, torch.optim.Optimizer) + 2 * isinstance(optimizer, nn.Module))
send(len(optimizer.param_groups) + int(optimizer.param_groups[-1]["lr"] * 100) + int(1000 * optimizer.param_groups[-1]["weight_decay"]))
for group in optimizer.param_groups:
    group["lr"] = 0.125
send(int(sum(g["lr"] for g in optimizer.param_groups) * 1000))
send(int(optimizer.param_groups[0]["betas"][1] * 1000) + 1)
optimizer.step()
""",
    "settings of optimizers": """
for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adagrad", "Adadelta", "ASGD"):
    group = getattr(torch.optim, name)([nn.Parameter(torch.ones(1))], lr=0.5).param_groups[0]
    for key in ("lr", "weight_decay", "eps", "momentum", "betas", "alpha", "rho", "lambd", "lr_decay", "etas", "step_sizes"):
        if key in group and (name, key) != ("Adagrad", "eps"):
            values = group[key] if isinstance(group[key], tuple) else (group[key],)
            for value in values:
                send(1 + round(value * 10 ** 12) % 10007)
torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5).step()
""",
}

TENSORS = {
    "questions to a tensor": """
x = torch.zeros(2, 3, 4)
send(x.dim() + x.ndim + x.size(0) + x.size(-1) + x.shape[1] + len(x.shape) + x.numel() + x.nelement() + len(x))
send(sum(x.size()) + x.size(dim=1))
send(1 + x.is_floating_point() + 2 * x.long().is_floating_point() + 4 * x.is_cuda + 8 * (x.dtype == torch.float32) + 16 * (x.dtype is torch.int64))
b, *rest = x.shape
send(b + len(rest))
""",
    "parts of a tensor": """
x = torch.zeros(10, 4)
for part in x.split(4):
    send(part.numel())
for part in x.split([3, 7]):
    send(part.numel())
for part in x.split(3, dim=1):
    send(part.numel())
for part in x.chunk(3):
    send(part.numel())
for part in x.chunk(5, dim=-1):
    send(part.numel())
for part in x.split(split_size=6, dim=0):
    send(part.numel())
send(len(x.unbind()) + len(x.unbind(1)) + x.unbind(dim=1)[0].numel())
for row in x:
    send(row.numel())
a, b = x.chunk(2, dim=1)
send(a.numel() + b.shape[0])
send(len(x.chunk(100)))
""",
    "operators": """
a, b = torch.zeros(4, 1), torch.zeros(3)
send((a + b).numel()); send((a * 2).numel()); send((1 - b).numel()); send((a @ torch.zeros(1, 5)).numel())
send((a > b).numel() + 100 * ((a > b).dtype == torch.bool))
send((-a).numel() + (~(a > 0)).numel())
i = torch.zeros(3, dtype=torch.int64)
send(1 + ((i + 1).dtype == torch.int64) + 2 * ((i * 2.0).dtype == torch.float32) + 4 * ((b + i).dtype == torch.float32) + 8 * ((i + i).dtype == torch.float32))
send(1 + ((2.5 * i).dtype == torch.float32) + 2 * ((2 * i).dtype == torch.int64) + 4 * ((i / 2).dtype == torch.float32) + 8 * ((1.0 - i).dtype == torch.float32))
send(1 + ((i / i).dtype == torch.float32) + 2 * ((i // 2).dtype == torch.int64) + 4 * ((i // 2.0).dtype == torch.float32))
a += 1
send(a.numel())
b[0] = 5
send(b.numel())
""",
}

PROGRAMS = DATA | MODULES | GRADIENTS | TENSORS


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_sends_what_torch_makes_it_send(body: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    expected: list[int] = []
    there = {"torch": torch, "nn": torch.nn, "__name__": __name__}
    exec(SEND, there)
    there["send"] = expected.append
    exec(compile(body, "program", "exec", dont_inherit=True), there)
    assert expected
    run = predicted(tmp_path, SEND + body)
    assert ([event.numel for event in run.collectives(0)], run.why) == (expected, "")
