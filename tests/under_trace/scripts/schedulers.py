# ends: completes
"""A chain of schedulers, and a training loop that ends when the learning rate is small."""

import math

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR


def adjust_learning_rate(optimizer, epoch, epochs, base):
    lr = base * 0.5 * (1.0 + math.cos(math.pi * epoch / epochs))
    for group in optimizer.param_groups:
        group["lr"] = lr
    return lr


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(4, 1))
    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        (no_decay if name.endswith("bias") else decay).append(parameter)
    optimizer = optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=0.1)
    scheduler = SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, 4)], milestones=[2])
    for step in range(6):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    epoch = 0
    while adjust_learning_rate(optimizer, epoch, 8, 0.2) > 0.05:
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        epoch += 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
