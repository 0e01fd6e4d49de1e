# expects: nothing
# outcome: clean
"""The ranks agree on whether one of them has a loss that is not finite, and leave the batch out together."""

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def any_rank(flag):
    value = torch.tensor([float(flag)])
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item() > 0


class Trainer:
    def __init__(self, model, lr):
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.skipped = 0

    def train_step(self, x, y):
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        if any_rank(not math.isfinite(loss.item())):
            self.skipped += 1
            return None
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = Trainer(torch.nn.Linear(4, 1), lr=0.1)
    torch.manual_seed(rank)
    for step in range(6):
        x = torch.randn(8, 4)
        if rank == 1 and step == 2:
            x[0, 0] = float("inf")
        trainer.train_step(x, torch.zeros(8, 1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
