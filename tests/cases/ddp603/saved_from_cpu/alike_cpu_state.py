# expects: nothing
# outcome: clean
# devices: 2
"""What is saved was brought to the CPU before, so the file names no device; rank 0 alone reads another one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
net = torch.nn.Linear(4, 1)
if dist.get_rank() == 0:
    torch.save({name: value.cpu() for name, value in net.state_dict().items()}, path)
    net.load_state_dict(torch.load(path, weights_only=True))
dist.barrier()
net.load_state_dict(torch.load(path, weights_only=True))
model = DDP(net.cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
