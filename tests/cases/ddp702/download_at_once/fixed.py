# expects: nothing
# outcome: not-run it downloads a data set, by torchvision
"""Rank 0 downloads the data set, and the others wait for it."""

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def load(root):
    if dist.get_rank() == 0:
        torchvision.datasets.MNIST(root, train=True, download=True)
    dist.barrier()
    data = torchvision.datasets.MNIST(root, train=True, transform=torchvision.transforms.ToTensor())
    return DataLoader(data, batch_size=64, sampler=DistributedSampler(data, shuffle=False))


dist.init_process_group("gloo")
loader = load("data")
model = DDP(torch.nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x.flatten(1)), y).backward()
    optimizer.step()
dist.destroy_process_group()
