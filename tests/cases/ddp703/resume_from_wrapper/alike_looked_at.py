# expects: nothing
# outcome: clean
"""The wrapper's state is loaded through a wrapper; a part is loaded on purpose, and what was missing is looked at."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)
dist.barrier()
state = torch.load(path, map_location="cpu", weights_only=True)
model.load_state_dict(state, strict=False)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1), torch.nn.Tanh())
result = net.load_state_dict(state, strict=False)
assert len(result.missing_keys) == len(result.unexpected_keys) == 4
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
