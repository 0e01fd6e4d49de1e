"""What the programs of the style tests begin with."""

from __future__ import annotations

HEAD = """\
import argparse, contextlib, functools, math, os, random, sys, time
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset
"""
DATA = """
dataset = TensorDataset(torch.randn(64, 4))
def train(model, loader, epochs=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for (x,) in loader:
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
"""
INIT = """
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""
MODEL = """
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
