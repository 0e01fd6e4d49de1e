# expects: nothing
# outcome: clean
"""DDP averages gradients alone."""

import torch
import torch.distributed as dist
from net import batch, build
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self) -> None:
        self.model = DDP(build())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()


dist.init_process_group("gloo")
trainer = Trainer()
for number in range(3):
    trainer.step(batch(number)[dist.get_rank() :: dist.get_world_size()])
dist.destroy_process_group()
