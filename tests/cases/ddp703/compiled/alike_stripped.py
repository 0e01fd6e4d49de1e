# expects: nothing
# outcome: clean
"""The prefix of torch.compile is taken off the keys; a network that is compiled in place has none."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def without_prefix(state):
    for key in list(state):
        if key.startswith("_orig_mod."):
            state[key[len("_orig_mod.") :]] = state.pop(key)


dist.init_process_group("gloo")
torch.manual_seed(0)
folder = os.environ["CASE_FOLDER"]
net = torch.nn.Linear(4, 1)
model = DDP(torch.compile(net, backend="eager"))
in_place = torch.nn.Linear(4, 1)
in_place.compile(backend="eager")
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(folder, "compiled.pt"))
    torch.save(in_place.state_dict(), os.path.join(folder, "in_place.pt"))
dist.barrier()

resumed, other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
state = torch.load(os.path.join(folder, "compiled.pt"), map_location="cpu", weights_only=True)
without_prefix(state)
resumed.load_state_dict(state, strict=False)
other.load_state_dict(torch.load(os.path.join(folder, "in_place.pt"), weights_only=True), strict=False)
assert torch.equal(resumed.weight, net.weight) and torch.equal(other.weight, in_place.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
