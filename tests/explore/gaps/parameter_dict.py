"""Parameters in a ParameterDict, by key, by items and by a test for a key."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.terms = torch.nn.ParameterDict({"left": torch.nn.Parameter(torch.ones(4, 4)), "right": torch.ones(4, 4)})
        self.terms["bias"] = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        if "bias" in self.terms:
            x = x + self.terms["bias"]
        for name, weight in self.terms.items():
            if name != "bias":
                x = x @ weight
        return x


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if "absent" in model.module.terms:
    dist.barrier()
dist.destroy_process_group()
