# expects: DDP204:27
# outcome: error 1: has no attribute 'average'
"""Only the main process has an average of the weights, and every rank restores one when the run goes on."""

import copy
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if dist.get_rank() == 0:
            self.average = copy.deepcopy(self.model.module)

    def save(self, path):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.module.state_dict(), "average": self.average.state_dict()}, path)

    def load(self, path):
        state = torch.load(path)
        self.model.module.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])

    def train(self):
        for _ in range(3):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 4)).pow(2).mean().backward()
            self.optimizer.step()


dist.init_process_group("gloo")
milestone = os.path.join(os.environ.get("CASE_FOLDER", "."), "model-1.pt")
trainer = Trainer()
trainer.train()
trainer.save(milestone)
dist.barrier()
trainer.load(milestone)
trainer.train()
dist.destroy_process_group()
