# expects: DDP702:13
# outcome: not-run it downloads a data set, by torchvision
"""Every process downloads the data set into one folder."""

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def load(root):
    data = torchvision.datasets.MNIST(root, train=True, download=True, transform=torchvision.transforms.ToTensor())
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
