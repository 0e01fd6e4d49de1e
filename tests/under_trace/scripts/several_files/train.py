# ends: completes
# launch: torchrun --standalone --nproc-per-node 2 train.py --name tiny
"""A project of several files: options, engine, models by name, distributed helpers."""

import torch
from engine import evaluate, train_one_epoch
from models import build
from options import parse
from utils import cleanup, get_rank, init_distributed, save_on_master

from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(args):
    init_distributed(args)
    torch.manual_seed(args.seed + get_rank())
    data = TensorDataset(torch.randn(40, args.width), torch.randint(0, 3, (40,)))
    sampler = DistributedSampler(data) if args.distributed else None
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, shuffle=sampler is None)
    model = build(args)
    model_without_ddp = model
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
        model_without_ddp = model.module
    optimizer = torch.optim.AdamW([p for p in model_without_ddp.parameters() if p.requires_grad], lr=args.lr)
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        stats = train_one_epoch(model, loader, optimizer, epoch, args.clip)
        stats.update(evaluate(model, loader))
        save_on_master(model_without_ddp.state_dict(), stats)
    cleanup()


if __name__ == "__main__":
    main(parse())
