# expects: nothing
# outcome: clean
"""All ranks stop by the mean of their validation losses, which a method of the trainer reduces."""

import torch
import torch.distributed as dist
from stopping import EarlyStopping
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.data = torch.randn(16, 4)

    @torch.no_grad()
    def validate(self):
        loss = self.model.module(self.data).pow(2).mean()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss.item()

    def fit(self, epochs):
        stopping = EarlyStopping(patience=2)
        for _ in range(epochs):
            self.optimizer.zero_grad()
            self.model(self.data).pow(2).mean().backward()
            self.optimizer.step()
            if stopping.should_stop(self.validate()):
                break


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
Trainer().fit(4)
dist.destroy_process_group()
