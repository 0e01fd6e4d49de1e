# ends: hangs
"""A set of names is walked in another order on the second rank, so broadcasts cross."""

from datetime import timedelta

import torch.distributed as dist
from torch import nn

ORDERS = {0: ["weight", "bias"], 1: ["bias", "weight"]}


def broadcast_state(module, names):
    state = dict(module.named_parameters())
    for name in names:
        if name == "weight":
            dist.broadcast(state[name].data, src=0)
        else:
            dist.all_reduce(state[name].data)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    layer = nn.Linear(300, 200)
    dist.barrier()
    broadcast_state(layer, ORDERS[dist.get_rank()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
