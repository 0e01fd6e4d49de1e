# expects: nothing
# outcome: clean; shows drawn again: False
"""A trainer stops, and a new one goes on from its checkpoint, which holds the state of each rank's stream."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, path):
        self.path = Path(path)
        torch.manual_seed(100 + dist.get_rank())
        net = torch.nn.Linear(4, 1)
        self.model = DDP(net)
        self.optimizer = torch.optim.AdamW(net.parameters())
        self.step = 0
        if self.path.exists():
            state = torch.load(self.path, weights_only=True)
            net.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
            torch.set_rng_state(state["rng"][dist.get_rank()])

    def train(self, steps):
        drawn = []
        for _ in range(steps):
            x = torch.randn(8, 4)
            drawn.append(x[0, 0].item())
            self.model(x).pow(2).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
        streams = [None] * dist.get_world_size()
        dist.all_gather_object(streams, torch.get_rng_state())
        if dist.get_rank() == 0:
            self.save(streams)
        dist.barrier()
        return drawn

    def save(self, streams):
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state | {"rng": streams}, self.path)


def main():
    dist.init_process_group("gloo")
    path = Path(os.environ["CASE_FOLDER"]) / "last.pt"
    first = Trainer(path).train(2)
    second = Trainer(path).train(2)
    print("drawn again:", first == second, flush=True)
    dist.destroy_process_group()


main()
