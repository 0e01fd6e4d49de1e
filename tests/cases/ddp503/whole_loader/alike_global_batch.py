# expects: nothing
# outcome: clean; shows learning rate 0.0000
"""The data set over the batch of all processes together is the number of steps of each."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(3)
world_size = dist.get_world_size()
batch_of_all = 4 * world_size
data = TensorDataset(torch.randn(32, 4))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=batch_of_all // world_size, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=2 * len(data) // batch_of_all)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (rows,) in loader:
        model(rows).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
print(f"learning rate {schedule.get_last_lr()[0]:.4f}")
dist.destroy_process_group()
