# expects: nothing
# outcome: clean
"""A data set that takes rank and world size serves this rank's rows only; the loader over it shuffles them."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, count, shard_id, num_shards):
        self.ids = list(range(count))[shard_id::num_shards]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.ids[index])
        return torch.randn(4, generator=generator)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Rows(32, shard_id=dist.get_rank(), num_shards=dist.get_world_size())
    loader = DataLoader(data, batch_size=4, shuffle=True)
    for _ in range(2):
        for x in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
