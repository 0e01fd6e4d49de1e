# expects: nothing
# outcome: clean
"""Encoder and head are wrapped together, and the optimizer is given the parts that it knows from before."""

import torch
import torch.distributed as dist
from model import Encoder, Head, distribute


class Both(torch.nn.Module):
    def __init__(self, encoder: torch.nn.Module, head: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x)).square().mean()


dist.init_process_group("gloo")
encoder, head = Encoder(), Head()
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
model = distribute(Both(encoder, head))
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
