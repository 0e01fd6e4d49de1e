# expects: nothing
# outcome: clean
"""A subclass of the wrapper passes attributes on, and a name is set on the plain wrapper before it is read."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Transparent(DistributedDataParallel):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def describe(self):
        return f"{self.layer.in_features} inputs"


dist.init_process_group("gloo")
see_through = Transparent(Line())
plain = DistributedDataParallel(Line())
plain.classes = ["one"]
see_through(torch.ones(2, 4)).sum().backward()
print(see_through.describe(), plain.classes, plain.device_ids, plain.find_unused_parameters, len(list(plain.named_buffers())))
dist.destroy_process_group()
