# ends: completes
"""Written for elastic restarts: the restart count and a state object decide where to begin."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


class State:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.epoch = -1

    def capture(self):
        return {"epoch": self.epoch, "model": self.model.state_dict()}

    def apply(self, snapshot):
        self.epoch = snapshot["epoch"]
        self.model.load_state_dict(snapshot["model"])


def newest(state):
    """Every rank takes the state of the rank that got furthest."""
    epochs = torch.zeros(dist.get_world_size(), dtype=torch.int32)
    epochs[dist.get_rank()] = state.epoch
    dist.all_reduce(epochs)
    rank = int(epochs.argmax())
    objects = [state.capture()]
    dist.broadcast_object_list(objects, src=rank)
    state.apply(objects[0])
    return state


@record
def main():
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = newest(State(model, optimizer))
    print("restarts", restarts, "epoch", state.epoch)
    for state.epoch in range(state.epoch + 1, 3):
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            state.capture()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
