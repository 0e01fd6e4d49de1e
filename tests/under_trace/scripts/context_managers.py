# ends: completes
"""Context managers of its own: the group, a timer, main process first."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def process_group(backend):
    dist.init_process_group(backend)
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def main_process_first():
    first = dist.get_rank() == 0
    if not first:
        dist.barrier()
    yield
    if first:
        dist.barrier()


class Timer:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, *exc_info):
        self.seconds = time.perf_counter() - self.start
        seconds = torch.tensor(self.seconds)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return False


def prepare():
    return [torch.full((2, 3), float(i)) for i in range(4)]


if __name__ == "__main__":
    with process_group("gloo") as (rank, world_size):
        with main_process_first():
            batches = prepare()
        model = DDP(nn.Linear(3, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with contextlib.ExitStack() as stack:
            timers = [stack.enter_context(Timer(name)) for name in ("outer", "inner")]
            for batch in batches:
                with torch.set_grad_enabled(True):
                    loss = model(batch).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            print(timers[0].seconds > 0, world_size)
