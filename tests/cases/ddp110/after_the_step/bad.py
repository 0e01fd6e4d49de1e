# expects: DDP110:12
# outcome: gradients-local; parameters-differ
"""The gradients are averaged, but only after the optimizer has used them."""

import torch
import torch.distributed as dist


def average(parameters) -> None:
    size = float(dist.get_world_size())
    for parameter in parameters:
        dist.all_reduce(parameter.grad.data)
        parameter.grad.data /= size


dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    loss = net(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average(net.parameters())
dist.destroy_process_group()
