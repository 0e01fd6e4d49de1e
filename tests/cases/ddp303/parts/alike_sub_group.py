# expects: nothing
# outcome: clean; shows parts [0, 0] of [1, 1]
"""Both ranks work on one model together: the data is divided among the teams, of which there is one."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TEAM = 2  # ranks that hold a model together

dist.init_process_group("gloo")
rank = dist.get_rank()
teams = dist.get_world_size() // TEAM
peers = [dist.new_group([team * TEAM + place for team in range(teams)]) for place in range(TEAM)]
mine = peers[rank % TEAM]
data = TensorDataset(torch.arange(16.0).reshape(16, 1))
sampler = DistributedSampler(data, num_replicas=dist.get_world_size(mine), rank=dist.get_rank(mine), shuffle=False)
rows = [int(x) for (batch,) in DataLoader(data, batch_size=4, sampler=sampler) for x in batch]
weight = torch.zeros(1)
weight += sum(rows) * rank
dist.all_reduce(weight)
found: list[tuple[int, int]] = [(0, 0)] * dist.get_world_size()
dist.all_gather_object(found, (sampler.rank, sampler.num_replicas))
print(f"parts {[part for part, _ in found]} of {[count for _, count in found]}")
dist.destroy_process_group()
