# ends: completes
"""A frozen dataclass as configuration, with derived fields and a factory for the optimizer."""

from dataclasses import asdict, dataclass, field, replace

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class OptimizerConfig:
    name: str = "adamw"
    lr: float = 3e-3
    betas: tuple = (0.9, 0.95)


@dataclass
class Config:
    hidden: list = field(default_factory=lambda: [8, 8])
    global_batch: int = 32
    steps: int = 5
    log_every: int = 2
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    local_batch: int = 0

    def __post_init__(self):
        assert self.global_batch % dist.get_world_size() == 0
        self.local_batch = self.global_batch // dist.get_world_size()


def build_model(config):
    sizes = [4, *config.hidden, 1]
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers.append(nn.Linear(a, b))
        layers.append(nn.GELU())
    return nn.Sequential(*layers[:-1])


def build_optimizer(config, parameters):
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    return kinds[config.name](parameters, lr=config.lr, betas=config.betas)


def run():
    config = Config(steps=6)
    config = replace(config, log_every=3)
    if dist.get_rank() == 0:
        print(asdict(config))
    torch.manual_seed(1)
    model = DistributedDataParallel(build_model(config))
    optimizer = build_optimizer(config.optimizer, model.parameters())
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(config.steps):
        batch = torch.randn(config.local_batch, 4, generator=generator)
        loss = (model(batch) - batch.prod(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % config.log_every == 0:
            logged = loss.detach().clone()
            dist.reduce(logged, dst=0)
            if dist.get_rank() == 0:
                print(step, logged.item() / dist.get_world_size())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        run()
    finally:
        dist.destroy_process_group()
