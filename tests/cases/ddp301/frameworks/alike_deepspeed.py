# expects: nothing
# outcome: clean
# needs: deepspeed
"""initialize() makes the loader from the data set and shards it; the engine accumulates and steps by itself."""

import argparse

import deepspeed
import torch
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
net = torch.nn.Linear(4, 1)
engine, optimizer, loader, _ = deepspeed.initialize(
    args=args, model=net, model_parameters=net.parameters(), training_data=TensorDataset(torch.randn(64, 4))
)
for epoch in range(2):
    for (x,) in loader:
        loss = engine(x).pow(2).mean()
        engine.backward(loss)
        engine.step()
