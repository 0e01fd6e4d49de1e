# expects: nothing
# outcome: clean
"""A penalty on the inner module's weights is added to the wrapper's loss: one backward, which is reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def penalty(net):
    return sum(p.pow(2).sum() for p in net.parameters())


def main():
    dist.init_process_group("gloo")
    net = torch.nn.Linear(4, 1)
    model = DDP(net)
    raw_model = model.module
    optimizer = torch.optim.SGD(raw_model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for _ in range(4):
        loss = model(torch.randn(8, 4)).pow(2).mean() + 1e-3 * penalty(raw_model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
