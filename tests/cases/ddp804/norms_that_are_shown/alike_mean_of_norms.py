# expects: nothing
# outcome: clean
"""Clips by the local norm; the norms of the ranks are averaged to be shown, and compared to see that they agree."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 4)
(model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
norms = [torch.zeros_like(norm) for _ in range(dist.get_world_size())]
dist.all_gather(norms, norm)
assert all(torch.equal(norms[0], other) for other in norms)
shown = norm.clone()
dist.all_reduce(shown)
shown /= dist.get_world_size()
optimizer.step()
dist.destroy_process_group()
