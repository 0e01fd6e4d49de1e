# expects: DDP201:19
# outcome: hang all
"""Rank 0 alone calls a loading helper that broadcasts the file to all ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def load_everywhere(path):
    box = [{"weight": torch.zeros(1, 4), "bias": torch.zeros(1)} if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


dist.init_process_group("gloo")
net = torch.nn.Linear(4, 1)
if dist.get_rank() == 0:
    net.load_state_dict(load_everywhere("last.pt"))
model = DDP(net)
model(torch.randn(2, 4)).mean().backward()
dist.destroy_process_group()
