"""The same training in one process."""

import torch
from net import batch, build

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(batch(step)).square().mean().backward()
    optimizer.step()
