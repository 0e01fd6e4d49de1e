# expects: nothing
# outcome: clean
"""After training, rank 0 alone loads the best weights for a last evaluation."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = {name: value.clone() for name, value in model.module.state_dict().items()}
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    best = {name: value.clone() for name, value in model.module.state_dict().items()}
if dist.get_rank() == 0:
    model.module.load_state_dict(best)
    with torch.no_grad():
        assert model.module(torch.ones(1, 4)).isfinite().all()
dist.destroy_process_group()
