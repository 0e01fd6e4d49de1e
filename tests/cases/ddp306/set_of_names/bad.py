# expects: DDP306:18
# outcome: shows another order on another rank: True
"""Reads the samples in the order of a set of names."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ROWS = [f"user-{k % 40}/clip-{k}" for k in range(160)]


class Users(Dataset):
    """One sample a user, by the name before the slash."""

    def __init__(self, rows: list[str]) -> None:
        rows = [name for name in rows if name]
        self.names = list({name.split("/")[0] for name in rows})

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(self.names[index].removeprefix("user-"))]) / 40


def main() -> None:
    dist.init_process_group("gloo")
    data = Users(ROWS)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    orders: list[list[str]] = [[]] * dist.get_world_size()
    dist.all_gather_object(orders, data.names)
    print(f"another order on another rank: {orders[0] != orders[1]}")
    dist.destroy_process_group()


main()
