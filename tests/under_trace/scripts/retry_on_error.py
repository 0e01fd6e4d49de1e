# ends: completes
"""A step that is tried again after an exception which all ranks meet together."""

import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("retry")


class TransientError(RuntimeError):
    pass


class Flaky:
    def __init__(self, fail_at):
        self.calls, self.fail_at = 0, set(fail_at)

    def load(self):
        self.calls += 1
        if self.calls in self.fail_at:
            raise TransientError(f"call {self.calls}")
        return torch.randn(2, 3)


def with_retries(function, attempts=3):
    for attempt in range(attempts):
        try:
            return function()
        except TransientError as error:
            log.warning("try %d: %s", attempt, error)
            dist.barrier()
            time.sleep(0.01)
    else:
        raise RuntimeError("gave up")


def main():
    dist.init_process_group("gloo")
    source = Flaky(fail_at=(2, 5))
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        batch = with_retries(source.load)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    assert source.calls == 6
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
