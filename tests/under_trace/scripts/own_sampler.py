# ends: completes
"""A sampler of its own: weighted, padded to the same length on all ranks."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset


class DistributedWeightedSampler(Sampler):
    def __init__(self, weights, num_replicas=None, rank=None, seed=0):
        self.num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        self.rank = dist.get_rank() if rank is None else rank
        self.weights = torch.as_tensor(weights, dtype=torch.double)
        self.num_samples = math.ceil(len(weights) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.seed, self.epoch = seed, 0

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        indices = torch.multinomial(self.weights, self.total_size, replacement=True, generator=g).tolist()
        indices = indices[self.rank : self.total_size : self.num_replicas]
        assert len(indices) == self.num_samples
        return iter(indices)

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(23, 3), torch.arange(23) % 2)
    sampler = DistributedWeightedSampler([1.0 if label else 3.0 for _, label in data])
    loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 4, drop_last=False))
    model = DDP(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        counted = torch.tensor([len(loader)])
        dist.all_reduce(counted, dist.ReduceOp.MAX)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
