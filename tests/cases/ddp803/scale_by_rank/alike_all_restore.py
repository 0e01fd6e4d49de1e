# expects: nothing
# outcome: clean
"""Rank 0 reads the state of the scaler and all ranks restore it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
state = [dict(scaler.state_dict(), scale=2.0) if dist.get_rank() == 0 else None]
dist.broadcast_object_list(state, src=0)
scaler.load_state_dict(state[0])
for _ in range(2):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
