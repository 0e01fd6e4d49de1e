"""A training of a few real steps, in which rank SLOW sleeps EXTRA seconds in each step in PHASE. For slow_ranks.py."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SLOW, PHASE, EXTRA = int(os.environ["SLOW"]), os.environ["PHASE"], float(os.environ["EXTRA"])
STEPS = int(os.environ["STEPS"])
SAVE_EVERY = 5


class Samples(Dataset):
    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(512, generator=torch.Generator().manual_seed(index)), index % 10


def extra(phase: str, times: int = 1) -> None:
    if phase == PHASE and dist.get_rank() == SLOW:
        time.sleep(EXTRA * times)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(6)], nn.Linear(512, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        extra("forward")
        return self.layers(x)


class Slow:
    """What is saved; pickling it takes its time."""

    def __reduce__(self):
        extra("checkpoint", SAVE_EVERY)
        return (dict, ())


dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
if PHASE == "backward":
    model.module.layers[0][0].weight.register_hook(lambda gradient: extra("backward"))
optimizer.register_step_pre_hook(lambda *_: extra("optimizer"))
samples = Samples()
sampler = DistributedSampler(samples)
step = 0
with tempfile.TemporaryDirectory() as folder:
    for x, y in DataLoader(samples, batch_size=64, sampler=sampler):
        extra("data")
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % SAVE_EVERY == 0:
            torch.save({"step": step, "more": Slow(), "model": model.module.layers[-1].state_dict()}, Path(folder) / "model.pt")
        if step >= STEPS:
            break
dist.destroy_process_group()
