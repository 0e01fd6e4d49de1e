# ends: completes
"""functools.partial, a registry filled by decorators, and factories chosen by name."""

from functools import partial, reduce

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP

MODELS = {}


def register(name):
    def add(builder):
        MODELS[name] = builder
        return builder

    return add


@register("mlp")
def mlp(width, depth, act=nn.ReLU):
    blocks = [nn.Sequential(nn.Linear(width, width), act()) for _ in range(depth)]
    return nn.Sequential(*blocks)


@register("linear")
class Linear(nn.Module):
    def __init__(self, width, **unused):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)


OPTIMIZERS = {"sgd": partial(optim.SGD, momentum=0.9), "adam": partial(optim.Adam, betas=(0.9, 0.99))}
all_sum = partial(dist.all_reduce, op=dist.ReduceOp.SUM)


def main():
    dist.init_process_group("gloo")
    for name, act in (("mlp", partial(nn.LeakyReLU, 0.1)), ("linear", None)):
        model = DDP(MODELS[name](width=4, depth=2, act=act))
        for kind in OPTIMIZERS:
            optimizer = OPTIMIZERS[kind](model.parameters(), lr=0.01)
            losses = []
            for _ in range(2):
                optimizer.zero_grad()
                loss = model(torch.randn(3, 4)).pow(2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            total = reduce(torch.add, losses)
            all_sum(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
