# expects: DDP116:21, DDP203:31
# outcome: hang all
"""Each rank stops by the validation loss on its own part of the data, through a class of another file."""

import torch
import torch.distributed as dist
from stopping import EarlyStopping
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def validate(model, data):
    return torch.nn.functional.mse_loss(model(data), data.sum(1, keepdim=True)).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 if rank else 0.05)
    stopping = EarlyStopping(patience=1)
    mine = torch.randn(16, 4) * (1 + rank)
    for epoch in range(20):
        for _ in range(2):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
        if stopping.should_stop(validate(model.module, mine) * (epoch if rank else 1)):
            break
    dist.barrier()
    dist.destroy_process_group()


main()
