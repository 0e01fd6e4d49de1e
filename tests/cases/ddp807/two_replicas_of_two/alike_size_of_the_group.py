# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 4 alike_size_of_the_group.py
"""Two replicas of two ranks each: the loss is normalised by the tokens of the replicas and scaled by the size of their group."""

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH = 2  # ranks that share a replica


class Layout:
    def __init__(self, width):
        self.ranks = dist.get_world_size()
        self.replicas = self.ranks // width
        for first in range(width):
            members = list(range(first, self.ranks, width))
            group = dist.new_group(members)
            if dist.get_rank() in members:
                self.group = group
        self.replica = dist.get_rank() // width


def tokens_of(labels, group):
    count = (labels != -100).sum().float()
    dist.all_reduce(count, group=group)
    return count


def main():
    dist.init_process_group("gloo")
    layout = Layout(WIDTH)
    torch.manual_seed(0)
    inputs, labels = torch.randn(64, 4), torch.randint(3, (64,))
    labels[::5] = -100
    data = TensorDataset(inputs, labels)
    sampler = DistributedSampler(data, num_replicas=layout.replicas, rank=layout.replica, shuffle=False)
    model = DDP(torch.nn.Linear(4, 3), process_group=layout.group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=32, sampler=sampler):
            start = torch.nn.Linear(4, 3)
            start.load_state_dict(model.module.state_dict())
            wanted = torch.autograd.grad(F.cross_entropy(start(inputs), labels, ignore_index=-100), start.weight)[0]
            loss = F.cross_entropy(model(x), y, ignore_index=-100, reduction="sum")
            scale = dist.get_world_size(layout.group) / tokens_of(y, layout.group)
            loss = loss * scale
            optimizer.zero_grad()
            loss.backward()
            factor = model.module.weight.grad.norm() / wanted.norm()
            print(f"{factor:.1f} times the gradient", flush=True)
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
