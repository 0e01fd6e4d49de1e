# expects: nothing
# outcome: clean
"""The loss is divided by the tokens of all ranks and multiplied by their number, which undoes DDP's mean."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def token_loss(logits, targets, mask):
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    count = mask.sum()
    dist.all_reduce(count)
    return (losses * mask.flatten()).sum() / count * dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        x, targets = torch.randn(2, 6, 4), torch.randint(8, (2, 6))
        mask = (torch.arange(6) < 2 + 3 * rank).float().expand(2, 6)
        optimizer.zero_grad()
        token_loss(model(x), targets, mask).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
