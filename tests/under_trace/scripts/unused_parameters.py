# ends: raises RuntimeError
"""A head that the forward leaves out: the second forward says that parameters were unused."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.main_head = nn.Linear(4, 2)
        self.aux_head = nn.Linear(4, 2)

    def forward(self, x, aux=False):
        x = torch.relu(self.trunk(x))
        if aux:
            return self.main_head(x), self.aux_head(x)
        return self.main_head(x)


def main():
    dist.init_process_group("gloo")
    model = DDP(TwoHeads())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
