# expects: DDP703:38
# outcome: shows goes on from random weights
"""One block of the network is compiled, so its keys do not fit the plain network that resumes, which has all but that block."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.block(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
net = Net()
net.block = torch.compile(net.block, backend="eager")
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    torch.save({"model": model.module.state_dict(), "step": 3}, path)
dist.barrier()

resumed = Net()
resumed.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["model"], strict=False)
assert torch.equal(resumed.head.weight, net.head.weight)
if not torch.equal(resumed.block.weight, net.block.weight):
    print("goes on from random weights", flush=True)
dist.destroy_process_group()
