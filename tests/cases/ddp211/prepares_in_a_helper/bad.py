# expects: DDP211:15
# outcome: hang all
"""Rank 0 downloads for longer than the timeout that the program gives, through two helpers."""

from datetime import timedelta

import torch
import torch.distributed as dist
from prepare import download_corpus, on_main
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    patience = timedelta(milliseconds=900)
    dist.init_process_group("gloo", timeout=patience)
    rank = dist.get_rank()
    on_main(rank, download_corpus, 1.8)
    torch.manual_seed(rank)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
