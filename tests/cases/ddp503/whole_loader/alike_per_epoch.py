# expects: nothing
# outcome: clean; shows learning rate 0.0000
"""A schedule in epochs is the same for any number of processes; the length of the data set is only printed."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

epochs = 3
dist.init_process_group("gloo")
torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 4))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    for (rows,) in loader:
        model(rows).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    schedule.step()
print(f"learning rate {schedule.get_last_lr()[0]:.4f} after {epochs} epochs of {len(data)}")
dist.destroy_process_group()
