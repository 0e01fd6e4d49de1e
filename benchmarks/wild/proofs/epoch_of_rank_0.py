# expects: DDP213:17
# outcome: hang 1
"""The patience of rank 0 moves its own epoch number to the second stage; the other ranks go on where they were."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

EPOCHS, SECOND_STAGE, PATIENCE = 6, 4, 2

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
epoch, worse = 0, 0
while epoch < EPOCHS:
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        worse += 1
        if worse >= PATIENCE and epoch < SECOND_STAGE:
            epoch = SECOND_STAGE
    dist.barrier()
    epoch += 1
dist.destroy_process_group()
