# class: wrong-value
# outcome: completes
# launch: torchrun --standalone --nproc-per-node 4 train.py
# where: train.py:44, train.py:46
"""2 pipeline-like groups x data parallel: loss is normalised by the tokens of the data-parallel group."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Recipe:
    def __init__(self, tensor_parallel_dim=2):
        dist.init_process_group("gloo")
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
        self.tp = tensor_parallel_dim
        self.dp_degree = self.world_size // self.tp
        for k in range(self.tp):
            ranks = list(range(k, self.world_size, self.tp))
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.dp_group = group
        self.dp_rank = self.rank // self.tp
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(8, 16), process_group=self.dp_group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        x, y = torch.randn(128, 8), torch.randint(0, 16, (128,))
        y[torch.rand(128) < 0.4] = -100
        data = TensorDataset(x, y)
        self.sampler = DistributedSampler(data, num_replicas=self.dp_degree, rank=self.dp_rank)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler)

    def train(self, epochs=2):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                num_tokens = (y != -100).sum().float()
                loss = F.cross_entropy(self.model(x), y, ignore_index=-100, reduction="sum")
                dist.all_reduce(num_tokens, group=self.dp_group)
                loss = loss * self.world_size / num_tokens
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


if __name__ == "__main__":
    Recipe().train()
    dist.destroy_process_group()
