# expects: nothing
# outcome: clean
"""A trainer class computes the losses of two views first and goes back through their sum."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, module: torch.nn.Module) -> None:
        self.model = DDP(module)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def losses(self, batch: torch.Tensor) -> list[torch.Tensor]:
        views = [batch, batch.flip(0)]
        return [self.model(view).square().mean() for view in views]

    def step(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        sum(self.losses(batch)).backward()
        self.optimizer.step()


dist.init_process_group("gloo")
trainer = Trainer(torch.nn.Linear(4, 1))
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    trainer.step(torch.randn(8, 4))
dist.destroy_process_group()
