# expects: DDP105:15
# outcome: gradients-local; parameters-differ
"""The window's step stands inside of the block that keeps gradients local, in a function that takes the model as argument."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def window(ddp_model, optimizer, batches):
    with ddp_model.no_sync():
        for x in batches:
            loss = ddp_model(x).pow(2).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        window(model, optimizer, torch.randn(2, 8, 4))
    dist.destroy_process_group()


main()
