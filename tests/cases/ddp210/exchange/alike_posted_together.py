# expects: nothing
# outcome: clean
"""Both neighbours post their send before they receive, and a batch with both sides on both ranks."""

import torch
import torch.distributed as dist
from neighbours import Pair
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pair = Pair()
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    pair.at_once(loss.detach())
got = torch.zeros(2)
messages = [
    dist.P2POp(dist.isend, torch.ones(2), (rank + 1) % world_size),
    dist.P2POp(dist.irecv, got, (rank - 1) % world_size),
]
for work in dist.batch_isend_irecv(messages):
    work.wait()
print(got, flush=True)
dist.destroy_process_group()
