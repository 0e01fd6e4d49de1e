# expects: nothing
# outcome: clean
"""Every rank downloads its own share, rank 0 does short things alone, and works for long only after the last collective."""

import torch
import torch.distributed as dist
from prepare import download_corpus, on_main
from torch.nn.parallel import DistributedDataParallel as DDP


def report(rank):
    if rank == 0:
        print("ready", flush=True)


dist.init_process_group("gloo")
rank = dist.get_rank()
download_corpus(0.1 + 0.1 * rank)
report(rank)
dist.barrier()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
on_main(rank, download_corpus, 0.3)
