# expects: nothing
# outcome: clean
"""Means over batches of one size, means of each sequence, and a mask that only counts what is printed."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 5, 4), torch.randint(0, 3, (16, 5)), torch.rand(16, 5) < 0.5)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False), drop_last=True)
for x, y, mask in loader:
    optimizer.zero_grad()
    losses = torch.nn.functional.cross_entropy(model(x).reshape(-1, 3), y.reshape(-1), reduction="none").reshape(y.shape)
    of_batch = losses.sum() / y.numel()
    of_sequences = ((losses * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
    seen = (losses * mask).sum().item() / mask.sum().item()
    (of_batch + of_sequences).backward()
    optimizer.step()
dist.destroy_process_group()
