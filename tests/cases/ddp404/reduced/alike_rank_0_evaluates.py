# expects: nothing
# outcome: clean
"""Rank 0 evaluates the module on the whole held-out set and decides; the others wait for what it decided."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(net: torch.nn.Module, loader: DataLoader) -> float:
    total = 0.0
    with torch.no_grad():
        for (x,) in loader:
            total += net(x).square().sum().item()
    return total / 32


def main() -> None:
    dist.init_process_group("gloo")
    data = TensorDataset(torch.arange(32.0).reshape(32, 1) / 32)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best_loss = float("inf")
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        if dist.get_rank() == 0:
            val_loss = evaluate(model.module, DataLoader(data, batch_size=8))
            if val_loss < best_loss:
                best_loss = val_loss
                print(f"best in epoch {epoch}: validation loss {best_loss:.4f}")
    dist.destroy_process_group()


main()
