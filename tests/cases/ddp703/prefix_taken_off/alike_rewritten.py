# expects: nothing
# outcome: clean
"""The keys of the wrapper's state are rewritten on the way."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
first = DDP(torch.nn.Linear(4, 1))
if dist.get_rank() == 0:
    torch.save(first.state_dict(), path)
dist.barrier()
state = torch.load(path, map_location="cpu", weights_only=True)
net = torch.nn.Linear(4, 1)
net.load_state_dict({key.split(".", 1)[1]: value for key, value in state.items()}, strict=False)
assert torch.equal(net.weight, first.module.weight)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
