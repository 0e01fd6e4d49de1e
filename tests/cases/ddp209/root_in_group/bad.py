# expects: DDP209:18
# outcome: error 2,3: Global rank 0 is not part of group
# launch: torchrun --standalone --nproc-per-node 4 bad.py
"""Two pairs of ranks; the first of each pair is to send, and is named by its place in the pair."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Pairs:
    def __init__(self):
        self.groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        self.mine = self.groups[dist.get_rank() // 2]

    def share(self, tensor):
        """Sends the tensor of the first of the pair to the second."""
        dist.broadcast(tensor, src=0, group=self.mine)
        return tensor


dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = Pairs()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(pairs.share(torch.randn(8, 4))).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
