"""The same training in one process with all tokens."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
values = torch.tensor([[3.0], [1.0], [1.0], [1.0]])
model(values).mean().backward()
optimizer.step()
