# expects: DDP206:16
# outcome: parameters-differ
"""Averages gradients by hand, layer by layer, in the order of a set of names."""

import torch
import torch.distributed as dist


class Averager:
    def __init__(self, model, skip):
        self.gradients = dict(model.named_parameters())
        self.names = set(self.gradients) - skip

    def average(self):
        for name in self.names:
            dist.all_reduce(self.gradients[name].grad)
            self.gradients[name].grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(8)))
averager = Averager(model, {"nothing"})
torch.manual_seed(1 + dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    averager.average()
    optimizer.step()
dist.destroy_process_group()
