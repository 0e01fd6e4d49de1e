# expects: nothing
# outcome: clean
"""Exceptions that come on all ranks alike, that end the process, or after which nothing collective follows."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(DataLoader(torch.randn(24, 4), batch_size=8))
try:
    while True:
        try:
            x = next(batches)
        except StopIteration:
            break
        try:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
        except RuntimeError as error:
            print("failed:", error, flush=True)
            raise
        optimizer.step()
        try:
            print(int(x[0, 0] > 0), flush=True)
        except ValueError:
            continue
except KeyboardInterrupt:
    print("stopped", flush=True)
finally:
    dist.destroy_process_group()
