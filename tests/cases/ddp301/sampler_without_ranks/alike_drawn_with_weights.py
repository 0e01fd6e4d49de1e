# expects: nothing
# outcome: clean
"""Each rank draws from the whole set with weights and with a seed of its own, on purpose: an epoch is a number of draws."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(400, 4))
    model = DDP(torch.nn.Linear(4, 1))
    torch.manual_seed(17 + dist.get_rank())
    sampler = WeightedRandomSampler([1.0] * 400, num_samples=16)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
