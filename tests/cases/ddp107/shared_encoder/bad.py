# expects: DDP107:19
# outcome: error all: Expected to mark a variable ready only once
"""One encoder for question and answer: the first pass is checkpointed in a helper, the second is plain."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils import checkpoint as recompute


class Matcher(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def encode_saving(self, x: torch.Tensor) -> torch.Tensor:
        return recompute.checkpoint(self.encoder, x, use_reentrant=True)

    def forward(self, question: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        left = self.encode_saving(self.embed(question))
        right = self.encoder(self.embed(answer))
        return (left - right).square().mean()


dist.init_process_group("gloo")
model = DDP(Matcher())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4), torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
