# expects: nothing
# outcome: clean
"""A trainer takes the loss from the wrapper, whose forward leads to the method; the inner module only evaluates."""

import torch
import torch.distributed as dist
from tools import core_of
from torch.nn.parallel import DistributedDataParallel


class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 8)
        self.head = torch.nn.Linear(8, 1)

    def compute_loss(self, x):
        return (self.head(self.body(x).tanh()) - x.sum(1, keepdim=True)).pow(2).mean()

    def forward(self, x):
        return self.compute_loss(x)


class Trainer:
    def __init__(self, network):
        self.network = DistributedDataParallel(network)
        self.core = core_of(self.network)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-2)

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.network(batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(Scorer())
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(4):
        trainer.step(torch.randn(8, 4))
    with torch.no_grad():
        trainer.core.compute_loss(torch.randn(8, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
