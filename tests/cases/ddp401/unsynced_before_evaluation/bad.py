# expects: DDP401:36
# outcome: hang all
"""Accumulates over the five batches of an epoch: its last forward is synchronised, so the evaluation of rank 0 broadcasts."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACCUMULATION = 5
EPOCHS = 2

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    model.train()
    for number, (x, y) in enumerate(loader):
        ends = (number + 1) % ACCUMULATION == 0
        model.require_backward_grad_sync = ends
        loss = torch.nn.functional.mse_loss(model(x), y) / ACCUMULATION
        loss.backward()
        if ends:
            optimizer.step()
            optimizer.zero_grad()
    if rank == 0:
        model.eval()
        with torch.no_grad():
            print("validation", model(torch.randn(8, 4)).mean().item(), flush=True)
    dist.barrier()
dist.destroy_process_group()
