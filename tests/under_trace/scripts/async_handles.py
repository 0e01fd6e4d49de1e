# ends: completes
"""Asynchronous collectives: handles in a list, waited for after the computation."""

import torch
import torch.distributed as dist
from torch import nn


class Averager:
    def __init__(self, model):
        self.model, self.pending = model, []

    def launch(self):
        for parameter in self.model.parameters():
            if parameter.grad is None:
                continue
            self.pending.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def finish(self):
        world = dist.get_world_size()
        while self.pending:
            work, parameter = self.pending.pop()
            work.wait()
            parameter.grad.div_(world)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Sigmoid(), nn.Linear(5, 1))
    averager = Averager(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(4, 3)).mean().backward()
        averager.launch()
        averager.finish()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
