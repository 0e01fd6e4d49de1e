# expects: DDP110:17
# outcome: wrong-factor 2
"""A mixin adds gradients up over the ranks, as it did before the model was wrapped."""

import torch
import torch.distributed as dist
from net import batch, build
from torch.nn.parallel import DistributedDataParallel as DDP


class SumsGradients:
    model: torch.nn.Module

    def sync_gradients(self) -> None:
        for parameter in self.model.parameters():
            if parameter.requires_grad and parameter.grad is not None:
                dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)


class Trainer(SumsGradients):
    def __init__(self) -> None:
        self.model = DDP(build())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.sync_gradients()
        self.optimizer.step()


dist.init_process_group("gloo")
trainer = Trainer()
for number in range(3):
    trainer.step(batch(number)[dist.get_rank() :: dist.get_world_size()])
dist.destroy_process_group()
