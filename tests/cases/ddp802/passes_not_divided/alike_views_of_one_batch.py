# expects: nothing
# outcome: clean
"""An inner loop adds up the losses of 4 scales of one batch, as a sum of terms."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.line(x)
        return out, torch.nn.functional.mse_loss(out, y)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(torch.randn(2, 8, 8, 4)[dist.get_rank()])
passes = 4
for step in range(2):
    x = next(batches)
    for micro_step in range(passes):
        model.require_backward_grad_sync = micro_step == passes - 1
        out, loss = model(x * (1 + micro_step), x.sum(1, keepdim=True))
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
