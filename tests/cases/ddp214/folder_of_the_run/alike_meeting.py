# expects: nothing
# outcome: clean
"""Broadcasts that only make the ranks meet, or whose value is written anew, or into a tensor that the model holds."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def meet():
    dist.broadcast(torch.zeros(1), src=0)
    dist.broadcast_object_list(["ready"], src=0)


def share_scale(model, scale):
    model.scale.data.fill_(scale)
    dist.broadcast(model.scale.data.view(-1), src=0)  # the memory of the buffer itself
    return model.scale


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.layer(x) * self.scale


dist.init_process_group("gloo")
torch.manual_seed(0)
inner = Net()
share_scale(inner, 1.0 + dist.get_rank())
model = DDP(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    meet()
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
