# ends: completes
"""A configuration that is read from YAML text, with defaults merged in and attribute access."""

import copy

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = """
model:
  width: 16
  depth: 2
train:
  steps: 4
  eval_every: 2
  clip: 1.0
"""
DEFAULTS = {"model": {"width": 8, "depth": 1, "dropout": 0.0}, "train": {"steps": 2, "eval_every": 1, "clip": None, "lr": 0.01}}


class AttrDict(dict):
    def __getattr__(self, name):
        try:
            value = self[name]
        except KeyError as error:
            raise AttributeError(name) from error
        return AttrDict(value) if isinstance(value, dict) else value


def merge(base, other):
    merged = copy.deepcopy(base)
    for key, value in other.items():
        if isinstance(value, dict) and key in merged:
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        total = model.module(data).sum()
    dist.all_reduce(total)
    model.train()
    return total.item()


def main():
    cfg = AttrDict(merge(DEFAULTS, yaml.safe_load(TEXT)))
    dist.init_process_group("gloo")
    blocks = [nn.Linear(4, cfg.model.width)]
    for _ in range(cfg.model.depth):
        blocks += [nn.ReLU(), nn.Dropout(cfg.model.dropout), nn.Linear(cfg.model.width, cfg.model.width)]
    model = DDP(nn.Sequential(*blocks))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.train.lr)
    data = torch.ones(8, 4) * (dist.get_rank() + 1)
    for step in range(1, cfg.train.steps + 1):
        optimizer.zero_grad()
        model(data).pow(2).mean().backward()
        if cfg.train.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), cfg.train.clip)
        optimizer.step()
        if step % cfg.train.eval_every == 0:
            value = evaluate(model, data)
            if dist.get_rank() == 0:
                print("eval", step, value)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
