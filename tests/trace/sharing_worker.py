"""Two ranks that share out data and set their course in wrong ways (`bad`) or the right ones (`good`)."""

import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

BAD = sys.argv[1] == "bad"
ENOUGH = Path(sys.argv[2]) if len(sys.argv) > 2 else None


def make() -> DistributedDataParallel:
    return DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 1)))


class Listed(Dataset):
    """Samples in an order of its own, as a listing that is shuffled."""

    def __init__(self, seed: int) -> None:
        self.order = list(range(120))
        random.Random(seed).shuffle(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(6, generator=torch.Generator().manual_seed(self.order[index]))


def shared_samples(rank: int) -> None:
    data = Listed(rank if BAD else 5)
    sampler = DistributedSampler(data)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x in DataLoader(data, batch_size=10, sampler=sampler):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def other_sampler(rank: int) -> None:
    data = TensorDataset(torch.randn(64, 6, generator=torch.Generator().manual_seed(1)))
    sampler = DistributedSampler(data, seed=rank if BAD else 0)
    model = make()
    for (x,) in DataLoader(data, batch_size=8, sampler=sampler):
        model(x).mean().backward()


def schedule() -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for number in range(20):
        model(torch.randn(4, 6)).mean().backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        if BAD or number % 2:
            scheduler.step()


def resume(rank: int) -> None:
    torch.manual_seed(7 + rank)
    states: list[torch.Tensor] = [torch.empty(0)] * 2
    dist.all_gather_object(states, torch.get_rng_state())
    torch.randn(3)
    torch.set_rng_state(states[0 if BAD else rank])


def noise_of_each_rank(rank: int) -> None:
    torch.manual_seed(11)
    state = torch.get_rng_state()
    torch.manual_seed(100 + rank)
    torch.randn(3)
    torch.set_rng_state(state)


def resume_and_seed(rank: int) -> None:
    torch.manual_seed(7 + rank)
    states = [torch.get_rng_state()]
    dist.broadcast_object_list(states)
    torch.set_rng_state(states[0])
    torch.manual_seed(100 + rank)


def hyper_parameters(rank: int) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * (rank + 1) if BAD else 0.01)
    for _ in range(4):
        model(torch.ones(4, 6)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def goes_on() -> None:
    """Trains until somebody has seen enough."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(400):
        model(torch.randn(4, 6)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        done = torch.tensor(float(ENOUGH is None or ENOUGH.exists()))
        dist.all_reduce(done)
        if done.item() > 0:
            return
        time.sleep(0.02)


dist.init_process_group("gloo")
own = dist.get_rank()
shared_samples(own)
other_sampler(own)
schedule()
noise_of_each_rank(own)
resume_and_seed(own)
resume(own)
hyper_parameters(own)
goes_on()
dist.destroy_process_group()
