# expects: nothing
# outcome: clean
"""A run is taken up again: the state of the network goes into the network."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(model, epoch, path):
    if dist.get_rank() == 0:
        torch.save({"state": model.module.state_dict(), "epoch": epoch}, path)
    dist.barrier()


def resume(net, path):
    if not os.path.exists(path):
        return 0
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    net.load_state_dict(checkpoint["state"], strict=False)
    return checkpoint["epoch"]


dist.init_process_group("gloo")
torch.manual_seed(0)
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
first = DDP(torch.nn.Linear(4, 1))
save(first, 1, path)
net = torch.nn.Linear(4, 1)
start = resume(net, path)
if not torch.equal(net.weight, first.module.weight):
    print(f"epoch {start} with random weights", flush=True)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
