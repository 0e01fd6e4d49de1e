"""Recurrent layers of which only the last state is used."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 6, batch_first=True)
        self.gru = torch.nn.GRU(4, 6, num_layers=2)
        self.rnn = torch.nn.RNN(4, 6, bidirectional=True)
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x):
        _, (hidden, cell) = self.lstm(x)
        _, state = self.gru(x)
        both = self.rnn(x)[1]
        return self.head(hidden[-1] + cell[-1]).sum() + self.head(state[-1]).sum() + self.head(both).sum()


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 5, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
