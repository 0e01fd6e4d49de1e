# expects: nothing
# outcome: clean
# launch: torchrun --nnodes 2 --nproc-per-node 1 alike_remainder.py
# devices: 1
"""The rank is brought below the number of devices of a node before it chooses one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank()
device_id = rank % torch.cuda.device_count()
torch.cuda.set_device(device_id)
model = DDP(torch.nn.Linear(4, 1).to(device_id), device_ids=[device_id])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(2):
    model(torch.randn(8, 4).to(device_id)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
