# expects: nothing
# outcome: clean; shows [2.0, 4.0, 6.0]
"""Names in a set are looked at in any order, but their values travel in one tensor that is packed in a known one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
wanted = {"loss", "accuracy", "recall"}
stats = {}
for name in wanted:
    stats[name] = {"accuracy": 1.0, "loss": 2.0, "recall": 3.0}[name]
packed = torch.tensor([stats[name] for name in sorted(wanted)])
dist.all_reduce(packed)
for name, value in zip(sorted(wanted), packed.tolist(), strict=True):
    stats[name] = value
print([stats[name] for name in sorted(stats)], flush=True)
dist.destroy_process_group()
