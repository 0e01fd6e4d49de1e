# expects: nothing
# outcome: shows 2 sets of labelled samples
"""Without a seed each rank draws its own labelled samples, and the sampler shares out lists that differ."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=None)
args = parser.parse_args()
dist.init_process_group("gloo")
if args.seed is not None:
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
labels = np.arange(256) % 4
labelled = np.concatenate([np.random.choice(np.where(labels == label)[0], 8, False) for label in range(4)])
data = Subset(TensorDataset(torch.randn(256, 4)), labelled.tolist())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
drawn = [None] * dist.get_world_size()
dist.all_gather_object(drawn, sorted(labelled.tolist()))
print(f"{len({tuple(one) for one in drawn})} sets of labelled samples", flush=True)
dist.destroy_process_group()
