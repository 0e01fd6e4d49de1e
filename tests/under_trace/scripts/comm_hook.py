# ends: completes
"""A communication hook of its own that sends half precision, with a state object that counts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class HookState:
    def __init__(self):
        self.buckets = 0


def half_hook(state, bucket):
    state.buckets += 1
    tensor = bucket.buffer().to(torch.float16).div_(dist.get_world_size())
    future = dist.all_reduce(tensor, async_op=True).get_future()

    def decompress(fut):
        out = bucket.buffer()
        out.copy_(fut.value()[0])
        return out

    return future.then(decompress)


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 1)))
    state = HookState()
    model.register_comm_hook(state, half_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 6)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
