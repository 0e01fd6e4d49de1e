# expects: nothing
# outcome: clean
"""Rank 0 shuffles the indices and sends them to all ranks; files are listed and sorted."""

import os
import random
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


class Files(Dataset):
    def __init__(self, folder: Path) -> None:
        self.paths = [folder / name for name in os.listdir(folder) if name.endswith(".txt")]
        self.paths.sort()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(self.paths[index].read_text())])


def main() -> None:
    dist.init_process_group("gloo")
    folder = Path(os.environ["CASE_FOLDER"])
    if dist.get_rank() == 0:
        for number in range(24):
            (folder / f"{number:03}.txt").write_text(str(number / 24))
    dist.barrier()
    data = Files(folder)
    order = [list(range(24))]
    if dist.get_rank() == 0:
        random.shuffle(order[0])
    dist.broadcast_object_list(order, src=0)
    train = Subset(data, order[0][:16])
    loader = DataLoader(train, batch_size=4, sampler=DistributedSampler(train, shuffle=False))
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
