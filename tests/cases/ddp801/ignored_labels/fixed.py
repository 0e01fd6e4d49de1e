# expects: nothing
# outcome: clean; shows differs from one process: False
"""Labels of padding are -100 and left out by cross_entropy: rank 0 has 1 that counts, rank 1 has 3. Divides by all."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
alone = torch.nn.Linear(4, 3)
model = DDP(torch.nn.Linear(4, 3))
model.module.load_state_dict(alone.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, labels = torch.randn(2, 3, 4), torch.tensor([[0, 1, 2], [2, 1, 0]])
padding = torch.tensor([[False, True, True], [False, False, False]])
labels[padding] = -100

logits = model(x[rank % 2])
y = labels[rank % 2]
count = (y != -100).sum()
dist.all_reduce(count)
loss = cross_entropy(logits, y, reduction="sum") * dist.get_world_size() / count
loss.backward()

cross_entropy(alone(x.view(-1, 4)), labels.view(-1)).backward()
same = torch.allclose(model.module.weight.grad, alone.weight.grad, atol=1e-6)
optimizer.step()
print(f"differs from one process: {not same}", flush=True)
dist.destroy_process_group()
