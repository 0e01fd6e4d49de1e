# expects: DDP306:16
# outcome: shows held out by a rank and trained on: True
"""Divides a data set by indices that each rank shuffles for itself."""

import torch
import torch.distributed as dist
from parts import Parts
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Points(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index / 64])


def train(model: DDP, loader: DataLoader, optimizer: torch.optim.Optimizer) -> set[int]:
    seen = set()
    for x in loader:
        seen |= set(x.flatten().mul(64).int().tolist())
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return seen


def main() -> None:
    dist.init_process_group("gloo")
    first, second = Parts(0.75).of(Points(), 64)
    loader = DataLoader(first, batch_size=8, sampler=DistributedSampler(first, shuffle=False))
    model = DDP(torch.nn.Linear(1, 1))
    seen = train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
    held_out: list[set[int]] = [set()] * dist.get_world_size()
    dist.all_gather_object(held_out, {int(64 * second[i].item()) for i in range(len(second))})
    print(f"held out by a rank and trained on: {any(seen & theirs for theirs in held_out)}")
    dist.destroy_process_group()


main()
