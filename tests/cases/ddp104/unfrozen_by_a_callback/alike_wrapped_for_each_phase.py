# expects: nothing
# outcome: clean
"""Each phase changes what is trained and then wraps the model anew."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def phase(net: nn.Module, train_body: bool) -> None:
    net.body.requires_grad_(train_body)
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


dist.init_process_group("gloo")
net = nn.Sequential()
net.body, net.head = nn.Linear(4, 8), nn.Linear(8, 1)
torch.manual_seed(1 + dist.get_rank())
phase(net, False)
phase(net, True)
dist.destroy_process_group()
