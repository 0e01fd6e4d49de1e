"""Parameters in a ParameterList, by iteration and by index."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2)])
        self.weights.append(torch.nn.Parameter(torch.ones(4, 3)))
        self.biases = torch.nn.ParameterList([torch.zeros(4), torch.zeros(3)])

    def forward(self, x):
        for weight in self.weights[:2]:
            x = x @ weight
        for number, bias in enumerate(self.biases):
            x = x + bias if number == 0 else x @ self.weights[-1] + bias
        return x


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if len(model.module.weights) == 3:
    dist.barrier()
dist.destroy_process_group()
