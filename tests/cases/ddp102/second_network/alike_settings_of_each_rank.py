# expects: nothing
# outcome: gradients-local; parameters-differ
"""Trains a shared body, and on each rank a head of its own with a learning rate of its own: they are meant to differ."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main() -> None:
    dist.init_process_group("gloo")
    try:
        rank = dist.get_rank()
        torch.manual_seed(0)
        body = DDP(torch.nn.Linear(8, 4))
        torch.manual_seed(100 + rank)
        head = torch.nn.Linear(4, 2)
        groups = [{"params": body.parameters(), "lr": 0.1}, {"params": head.parameters(), "lr": 0.01 * (1 + rank)}]
        optimizer = torch.optim.SGD(groups)
        for _ in range(4):
            optimizer.zero_grad()
            head(body(torch.randn(8, 8))).square().mean().backward()
            optimizer.step()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
