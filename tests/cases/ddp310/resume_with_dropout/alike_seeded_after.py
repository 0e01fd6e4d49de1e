# expects: nothing
# outcome: clean
"""A trainer that saves its random state on rank 0, and seeds each rank apart after it has restored it."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, folder):
        self.rank = dist.get_rank()
        self.folder = folder
        self.model = DDP(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def path(self):
        return os.path.join(self.folder, "last.pt")

    def save(self):
        if self.rank == 0:
            state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            state["random"] = torch.get_rng_state()
            torch.save(state, self.path())
        dist.barrier()

    def resume(self):
        state = torch.load(self.path(), map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state.get("random") is not None:
            torch.set_rng_state(state["random"].cpu())
        torch.manual_seed(200 + self.rank)

    def train(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            noise = torch.randn(8, 4)
            self.model(noise).pow(2).mean().backward()
            self.optimizer.step()
        return noise


dist.init_process_group("gloo")
torch.manual_seed(100 + dist.get_rank())
trainer = Trainer(os.environ.get("CASE_FOLDER", "."))
trainer.train(2)
trainer.save()
trainer.resume()
noise = trainer.train(1)
first = noise.clone()
dist.broadcast(first, src=0)
if trainer.rank != 0 and torch.equal(noise, first):
    print(f"rank {trainer.rank} resumes with the noise of rank 0", flush=True)
dist.destroy_process_group()
