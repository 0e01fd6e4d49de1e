# expects: DDP108:24
# outcome: error all: Expected to have finished reduction
"""Generator and critic live in one wrapped module; its forward runs the generator alone."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Adversarial(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(2, 4)
        self.critic = Critic()

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.generator(noise)

    def judge(self, x: torch.Tensor) -> torch.Tensor:
        return self.critic(x)


dist.init_process_group("gloo")
model = DDP(Adversarial())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    (model(torch.randn(8, 2)) - 1).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
