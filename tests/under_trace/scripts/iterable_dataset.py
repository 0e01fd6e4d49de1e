# ends: completes
"""An IterableDataset that shards itself by rank and worker, with the same number for each."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, start, stop):
        super().__init__()
        self.start, self.stop = start, stop

    def __iter__(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        info = get_worker_info()
        workers = 1 if info is None else info.num_workers
        worker = 0 if info is None else info.id
        for index in range(self.start, self.stop):
            if index % (world * workers) == rank * workers + worker:
                yield torch.tensor([float(index), 1.0])


def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Stream(0, 48), batch_size=4)
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    seen = 0
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        seen += batch.size(0)
    total = torch.tensor(seen)
    dist.all_reduce(total)
    assert total.item() == 48
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
