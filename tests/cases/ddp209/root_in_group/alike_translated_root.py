# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 4 alike_translated_root.py
"""The first of each pair by its global rank, computed and translated."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = groups[rank // 2]
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(8, 4)
    dist.broadcast(x, src=rank // 2 * 2, group=mine)
    dist.broadcast(x, src=dist.get_global_rank(mine, 0), group=mine)
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
