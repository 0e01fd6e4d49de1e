# expects: nothing
# outcome: clean
"""The mean over the ranks is computed for the log alone; the loss of the backward is as it was."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    value /= dist.get_world_size()
    return value.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 4), torch.arange(8) % 3
part = slice(dist.get_rank() * 4, dist.get_rank() * 4 + 4)
loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
shown = mean_over_ranks(loss)
loss.backward()
optimizer.step()
dist.destroy_process_group()
