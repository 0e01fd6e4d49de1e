# expects: nothing
# outcome: clean
"""Two neighbours send their losses in turn."""

import torch
import torch.distributed as dist
from neighbours import Pair
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pair = Pair()
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(pair.in_turn(loss.detach()).item(), flush=True)
dist.destroy_process_group()
