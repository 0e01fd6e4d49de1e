# expects: nothing
# outcome: clean
"""Pads the training data, where a repeated row does no harm, and averages the training loss."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rows = TensorDataset(torch.arange(9.0).reshape(9, 1) / 9)
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=2, sampler=sampler)
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    total = torch.zeros(1)
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {total.item() / dist.get_world_size() / len(loader):.4f}")
dist.destroy_process_group()
