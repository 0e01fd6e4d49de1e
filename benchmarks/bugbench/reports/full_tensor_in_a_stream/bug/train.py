# class: unmatched-collective
# outcome: abort 0
# where: train.py:27, train.py:45
"""RL: after each update the sharded policy is streamed to the inference engine."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class EngineClient:
    """Stands for the HTTP client of the generation server."""

    def __init__(self):
        self.received = {}

    def update_weights(self, named_tensors):
        for name, tensor in named_tensors:
            self.received[name] = tensor.shape


def iter_named_params(model):
    for name, param in model.named_parameters():
        full = param.full_tensor() if isinstance(param, DTensor) else param
        yield name, full.detach()


class AsyncTrainer:
    def __init__(self, mesh):
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        for layer in self.policy:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(self.policy, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-3)
        self.is_main = dist.get_rank() == 0
        self.client = EngineClient() if self.is_main else None

    def sync_weights(self):
        if self.is_main:
            self.client.update_weights(iter_named_params(self.policy))

    def step(self):
        obs = torch.randn(16, 8)
        logp = torch.log_softmax(self.policy(obs), -1)
        loss = -(logp * torch.randn(16, 4)).sum(-1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def train(self, steps=4):
        for _ in range(steps):
            self.step()
            self.sync_weights()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    AsyncTrainer(init_device_mesh("cpu", (dist.get_world_size(),))).train()
    dist.destroy_process_group()
