# expects: DDP701:28
# outcome: shows finds the weights of another rank
"""A trainer class saves the weights with each rank's own loss to one path."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, net, path):
        self.model = DDP(net)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.path = path

    def epoch(self):
        x = torch.randn(8, 4)
        self.optimizer.zero_grad()
        loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def save(self, loss):
        torch.save({"weights": self.model.module.state_dict(), "loss": loss}, self.path)

    def fit(self, epochs):
        for _ in range(epochs):
            loss = self.epoch()
        time.sleep(0.5 * dist.get_rank())
        self.save(loss)
        return loss


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer(torch.nn.Linear(4, 1), os.path.join(os.environ["CASE_FOLDER"], "best.pt"))
loss = trainer.fit(3)
dist.barrier()
if torch.load(trainer.path, weights_only=True)["loss"] != loss and dist.get_rank() == 0:
    print("rank 0 finds the weights of another rank", flush=True)
dist.destroy_process_group()
