# expects: nothing
# outcome: clean
"""The training loss is reduced to rank 0, which prints it; the others print nothing."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
data = TensorDataset(torch.arange(32.0).reshape(32, 1) / 32)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x,) in enumerate(loader):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    shown = loss.detach().clone()
    dist.reduce(shown, 0)
    if rank == 0 and step % 2 == 0:
        print(f"step {step} loss {shown.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
