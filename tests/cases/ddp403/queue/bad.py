# expects: DDP403:19
# outcome: shows rank 1 finds features of its own: False
"""Keeps features of each rank in a queue that DDP takes for its own."""

import torch
import torch.distributed as dist
from bank import Bank
from torch.nn.parallel import DistributedDataParallel as DDP


class Learner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.eye_(self.encoder.weight)
        self.bank = Bank(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.encoder(x)
        return features, self.bank(features)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(Learner())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    negatives = torch.zeros(8, 2)
    for step in range(3):
        features, negatives = model(torch.full((2, 2), 10.0 * rank + step))
        optimizer.zero_grad()
        (features - negatives[:2]).square().mean().backward()
        optimizer.step()
    if rank == 1:
        print(f"rank 1 finds features of its own: {negatives.max().item() >= 10}")
    dist.destroy_process_group()


main()
