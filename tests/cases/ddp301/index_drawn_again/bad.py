# expects: DDP301:28
# outcome: same-samples
"""The data set draws another row where the one that it was asked for is broken; the loader shares nothing out."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, training):
        self.training = training
        self.rows = torch.arange(64.0).repeat(4, 1).T / 64
        self.weights = torch.ones(64)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.rows[index].isnan().any():
            index = int(torch.multinomial(self.weights, 1))
        return self.rows[index]


dist.init_process_group("gloo")
torch.manual_seed(17 + dist.get_rank())
loader = DataLoader(Clips(training=True), batch_size=8)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
