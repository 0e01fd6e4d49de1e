# expects: nothing
# outcome: clean
"""Loops are left and batches left out by step numbers, by a limit that an option sets, and by what was gathered from all ranks."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    best = float("inf")
    for step in range(20):
        if step < args.skip:
            continue
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.max_steps and step + 1 >= args.max_steps:
            break
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, loss.item())
        if max(everyone) < 1e-3:
            break
        if loss.item() < best:
            best = loss.item()
            continue
        if dist.get_rank() == 0:
            print(step, "no better")
    dist.destroy_process_group()


parser = argparse.ArgumentParser()
parser.add_argument("--skip", type=int, default=1)
parser.add_argument("--max-steps", type=int, default=4)
main(parser.parse_args())
