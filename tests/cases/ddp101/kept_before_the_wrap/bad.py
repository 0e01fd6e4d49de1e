# expects: DDP101:16
# outcome: gradients-local; parameters-differ
"""The step function closes over the module that was there before the wrap; only the evaluation uses the wrapper."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def make_step(net, optimizer):
    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main(args):
    dist.init_process_group("gloo")
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)
    step = make_step(net, optimizer)
    model = DDP(net)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(args.steps):
        x = torch.randn(8, 4, generator=generator)
        step(x, x.sum(1, keepdim=True))
    with torch.no_grad():
        model(torch.randn(8, 4, generator=generator))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=4)
    main(parser.parse_args())
