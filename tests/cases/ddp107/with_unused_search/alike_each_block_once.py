# expects: nothing
# outcome: clean
"""Re-entrant checkpoints over the blocks of a list, each used once, in a plain wrapper."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.stem = nn.Linear(4, 4)
        self.middle = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        if self.recompute and self.training:
            x = checkpoint(self.middle, x, use_reentrant=True)
        else:
            x = self.middle(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x.square().mean()


dist.init_process_group("gloo")
model = DDP(Net(True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
