# expects: nothing
# outcome: clean
"""A meter of the project's own has the methods compute, aggregate and save; none of them talks to other ranks."""

import torch
import torch.distributed as dist


class Meter:
    def __init__(self):
        self.values = []

    def log(self, value):
        self.values.append(value)

    def compute(self):
        return sum(self.values) / len(self.values)

    def aggregate(self):
        return self.compute()


dist.init_process_group("gloo")
meter = Meter()
if dist.get_rank() == 0:
    meter.log(torch.ones(1).item())
    print(meter.compute(), meter.aggregate())
dist.destroy_process_group()
