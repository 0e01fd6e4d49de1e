# expects: nothing
# outcome: clean
"""Each rank divides by the tokens of all ranks, and DDP's mean is undone."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def masked_mean(losses, mask):
    count = mask.sum()
    dist.all_reduce(count)
    return (losses * mask).sum() * dist.get_world_size() / count


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.tensor([[3.0] * 4, [1.0] * 4]), torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]]))
    loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
    for values, mask in loader:
        optimizer.zero_grad()
        losses = model(values.reshape(-1, 1)).reshape(values.shape)
        masked_mean(losses, mask).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
