# expects: DDP801:25
# outcome: wrong-factor 1.33333
"""Each rank takes the mean over its own tokens: 3 of one rank weigh as much as 1 of the other."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def masked_mean(losses, mask):
    return (losses * mask).sum() / mask.sum()


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
