# expects: nothing
# outcome: clean; reductions 3
"""The forward of all micro-batches but the last runs in no_sync(); the backward follows outside, where nothing reads the switch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def losses(model, micro_batches):
    for number, x in enumerate(micro_batches):
        if number < len(micro_batches) - 1:
            with model.no_sync():
                yield model(x).pow(2).mean()
        else:
            yield model(x).pow(2).mean()


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        for loss in losses(model, torch.randn(4, 8, 4)):
            (loss / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
