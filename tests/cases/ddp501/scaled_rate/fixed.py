# expects: nothing
# outcome: clean; shows rate 0.10 for 8 samples
"""The batch is shared out among the processes, so an update and its learning rate stay as they are."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Config:
    batch_size = 8
    learning_rate = 0.1


dist.init_process_group("gloo")
torch.manual_seed(3)
world_size = dist.get_world_size()
assert Config.batch_size % world_size == 0
data = TensorDataset(torch.randn(32, 4))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=Config.batch_size // world_size, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=Config.learning_rate, momentum=0.9)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (rows,) in loader:
        model(rows).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
done = torch.tensor([float(len(rows))])
dist.all_reduce(done)
print(f"rate {optimizer.param_groups[0]['lr']:.2f} for {int(done)} samples")
dist.destroy_process_group()
