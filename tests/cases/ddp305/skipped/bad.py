# expects: DDP305:10
# outcome: shows points that some rank trained on: 32 of 64
"""Takes every other batch of a loader whose sampler gives each rank every other sample."""

import torch
import torch.distributed as dist
from feeding import Feed
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    feed = Feed(TensorDataset(torch.arange(64.0).reshape(64, 1) / 64))
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: set[int] = set()
    for index, (x,) in enumerate(feed.loader):
        if index % feed.world_size != feed.rank:
            continue
        seen |= set(x.flatten().mul(64).int().tolist())
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    everywhere: list[set[int]] = [set()] * dist.get_world_size()
    dist.all_gather_object(everywhere, seen)
    print(f"points that some rank trained on: {len(set().union(*everywhere))} of 64")
    dist.destroy_process_group()


main()
