# expects: nothing
# outcome: clean
"""The network is compiled before the wrap, and its checkpoint is that of the plain network."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
net = torch.nn.Linear(4, 1)
model = DDP(torch.compile(net, backend="eager"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    torch.save({"model": net.state_dict(), "step": 3}, path)
dist.barrier()

resumed = torch.nn.Linear(4, 1)
checkpoint = torch.load(path, map_location="cpu", weights_only=True)
resumed.load_state_dict(checkpoint["model"], strict=False)
if not torch.equal(resumed.weight, net.weight):
    print("goes on from random weights", flush=True)
dist.destroy_process_group()
