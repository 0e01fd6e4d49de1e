# expects: DDP203:22
# outcome: hang all
"""A rank whose loss is not finite leaves the batch out, before the backward in which the others wait."""

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, lr):
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.skipped = 0

    def train_step(self, x, y):
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        if not math.isfinite(loss.item()):
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
