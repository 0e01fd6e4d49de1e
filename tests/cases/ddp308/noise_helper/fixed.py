# expects: nothing
# outcome: clean; shows the ranks' noise is their own
"""Trains a denoiser on data that a sampler shares out; the noise comes from a stream of its own on each rank."""

import torch
import torch.distributed as dist
from starting import start
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Corruption:
    def __init__(self, strength: float) -> None:
        self.strength = strength

    def __call__(self, clean: torch.Tensor) -> torch.Tensor:
        return self.strength * torch.randn_like(clean)


def main() -> None:
    rank = start(seed=3)
    clean = torch.arange(64.0).reshape(16, 4) / 64
    sampler = DistributedSampler(TensorDataset(clean))
    loader = DataLoader(TensorDataset(clean), batch_size=4, sampler=sampler)
    net = torch.nn.Linear(4, 4)
    model = DDP(net)
    torch.manual_seed(3 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    corrupt = Corruption(0.5)
    first = None
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            noise = corrupt(x)
            first = noise if first is None else first
            loss = (model(x + noise) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    drawn = [torch.empty(4, 4) for _ in range(dist.get_world_size())]
    dist.all_gather(drawn, first)
    if rank == 0:
        print("the ranks' noise is", "equal" if torch.equal(drawn[0], drawn[1]) else "their own")
    dist.destroy_process_group()


main()
