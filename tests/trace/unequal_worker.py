"""A worker for the tests of the tracer: noise on each batch, and a loss over the labels that are not ignored.

With `--faults` all ranks keep one seed and take the mean over their own labels; without, each has its own seed and the labels of
all ranks count.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    faults = "--faults" in sys.argv
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 10), torch.nn.Dropout(0.1)))
    if not faults:
        torch.manual_seed(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.arange(384.0).reshape(48, 8) / 384)
    for (x,) in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
        labels = torch.arange(4)
        labels[2 + 2 * rank :] = -100
        count = (labels != -100).sum()
        dist.all_reduce(count)
        output = model(x + torch.randn(4, 8))
        loss = cross_entropy(output, labels) / 2 if faults else cross_entropy(output, labels, reduction="sum") * 2 / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    del (
        model,
        output,
        loss,
    )  # before the group: what frees the reducer last waits for gloo's thread, which may wait for the interpreter
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
