# expects: DDP404:31
# outcome: shows ranks disagree on the best epoch: True
"""Each rank keeps the epoch that was best on its own part of the held-out data."""

import torch
import torch.distributed as dist
from evaluation import accuracy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loaders() -> tuple[DataLoader, DataLoader]:
    x = torch.arange(1.0, 33.0).reshape(32, 1) / 32
    labels = torch.where(torch.arange(32).reshape(32, 1) % 2 == 0, 1.0, -1.0)
    found = []
    for data in (TensorDataset(x, -x), TensorDataset(x, labels)):
        found.append(DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)))
    return found[0], found[1]


def main() -> None:
    dist.init_process_group("gloo")
    train_loader, val_loader = loaders()
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(net.weight, 0.5)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    best_acc, best_epoch = -1.0, -1
    for epoch in range(5):
        val_acc = accuracy(model, val_loader, everywhere=False)
        if val_acc > best_acc:
            best_acc, best_epoch = val_acc, epoch
            print("kept", epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
    epochs = [0] * dist.get_world_size()
    dist.all_gather_object(epochs, best_epoch)
    print(f"ranks disagree on the best epoch: {len(set(epochs)) > 1}")
    dist.destroy_process_group()


main()
