# expects: nothing
# outcome: clean
"""The optimizer is built before the wrap, and the wrapped model gets attributes that are no parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.layer(x)).square().mean()


dist.init_process_group("gloo")
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model = DDP(net)
model.module.activation = nn.Tanh()
model.module.classes = 2
model.names = ["a", "b"]
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
