# ends: completes
"""Early stopping that rank 0 decides and broadcasts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience=2, min_delta=0.0):
        self.patience = patience
        self.min_delta = min_delta
        self.best = None
        self.counter = 0
        self.stop = False

    def __call__(self, loss):
        if self.best is None or loss < self.best - self.min_delta:
            self.best = loss
            self.counter = 0
        else:
            self.counter += 1
            if self.counter >= self.patience:
                self.stop = True
        return self.stop


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stopper = EarlyStopping(patience=2)
    losses = [1.0, 0.5, 0.6, 0.7, 0.4, 0.3]
    for epoch in range(10):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(4, 3)).mean().backward()
            optimizer.step()
        flag = torch.zeros(1)
        if dist.get_rank() == 0 and stopper(losses[epoch]):
            flag += 1
        dist.broadcast(flag, src=0)
        if flag.item():
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
