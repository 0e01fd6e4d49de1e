# expects: nothing
# outcome: clean
"""One block twice under re-entrant checkpoints, in a wrapper that is told that the graph never changes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.block = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.block, self.embed(x), use_reentrant=True)
        return checkpoint(self.block, x, use_reentrant=True).square().mean()


dist.init_process_group("gloo")
model = DDP(Net(), static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
