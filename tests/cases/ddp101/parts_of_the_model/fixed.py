# expects: nothing
# outcome: clean
"""Training calls the wrapper."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 3)
        self.decoder = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def decode(self, net, code):
        return net.decoder(code)

    def step(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer(DDP(Net()))
for _ in range(3):
    trainer.step(torch.randn(8, 4))
dist.destroy_process_group()
