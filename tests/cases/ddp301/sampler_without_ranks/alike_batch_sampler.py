# expects: nothing
# outcome: clean
"""A batch sampler that asks the process group for its rank deals whole batches out to the ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Dealt(BatchSampler):
    def __init__(self, sampler, batch_size, drop_last=True):
        super().__init__(sampler, batch_size, drop_last)
        self.replica = dist.get_rank() if dist.is_initialized() else 0
        self.replicas = dist.get_world_size() if dist.is_initialized() else 1

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number % self.replicas == self.replica:
                yield batch

    def __len__(self):
        return super().__len__() // self.replicas


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4))
    order = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(data, batch_sampler=Dealt(order, 4))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
