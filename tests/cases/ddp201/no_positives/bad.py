# expects: DDP201:27
# outcome: abort 0; hang 1
"""A loss is normalised by the mean count of positives over the ranks, where this rank has any: one that has none stays away."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def reduce_mean(tensor):
    tensor = tensor.clone()
    dist.all_reduce(tensor.div_(dist.get_world_size()))
    return tensor


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(4, 1)

    def forward(self, x, positive):
        scores = self.score(x)
        num_pos = positive.sum()
        loss = scores.pow(2).mean()
        if num_pos > 0:
            avg_factor = reduce_mean(num_pos).clamp(min=1.0)
            loss = loss + (scores[positive > 0] - 1).pow(2).sum() / avg_factor
        return loss


def main():
    dist.init_process_group("gloo")
    model = DDP(Head())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.randn(48, 4, generator=torch.Generator().manual_seed(0)).abs()
    rows[17:32:2] = -1.0
    for x in DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows, shuffle=False)):
        positive = (x[:, 0] > 0).float()
        optimizer.zero_grad()
        model(x, positive).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
