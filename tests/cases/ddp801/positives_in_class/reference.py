"""The same training in one process with the positives of both ranks."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.tensor([[2.0], [2.0], [0.5], [0.5], [0.5], [0.5]])
model(x).mean().backward()
optimizer.step()
