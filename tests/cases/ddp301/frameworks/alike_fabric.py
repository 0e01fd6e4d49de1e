# expects: nothing
# outcome: clean
# needs: lightning
"""setup_dataloaders() replaces the sampler; no_backward_sync() holds forward and backward of all micro-batches but the last."""

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True))
for epoch in range(2):
    for index, (x,) in enumerate(loader):
        accumulating = (index + 1) % 2 != 0
        with fabric.no_backward_sync(model, enabled=accumulating):
            fabric.backward(model(x).pow(2).mean())
        if not accumulating:
            optimizer.step()
            optimizer.zero_grad()
    if fabric.global_rank == 0:
        print(epoch)
    fabric.barrier()
