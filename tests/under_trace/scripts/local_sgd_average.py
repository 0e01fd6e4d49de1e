# ends: completes
"""Local SGD: each rank trains alone and the parameters are averaged every few steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def average_parameters(model):
    flat = parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(flat)
    vector_to_parameters(flat / dist.get_world_size(), model.parameters())


def main(steps=9, every=4):
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(3, 6), nn.ELU(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    done = 0
    while done < steps:
        for _ in range(min(every, steps - done)):
            x = torch.randn(4, 3)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
            optimizer.step()
            done += 1
        average_parameters(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
