# class: rank-local-state
# outcome: prints-differ CKPT\+\d+
# where: train.py:34
"""Checkpoints get a folder with a time stamp; rank 0 makes it and tells the others."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROOT = os.environ.get("CASE_FOLDER", "out/save")


def if_main_process():
    return dist.get_rank() == 0


class Checkpointer:
    def __init__(self, root, recoverables):
        self.root = root
        self.recoverables = recoverables

    def _new_dirpath(self):
        return os.path.join(self.root, f"CKPT+{time.time_ns()}")

    def save_checkpoint(self):
        ckpt_dir = self._new_dirpath()
        if if_main_process():
            os.makedirs(ckpt_dir)
        dist.broadcast_object_list([ckpt_dir], src=0)
        if if_main_process():
            for name, obj in self.recoverables.items():
                torch.save(obj.state_dict(), os.path.join(ckpt_dir, name + ".pt"))
        rng = os.path.join(ckpt_dir, f"rng{dist.get_rank()}.pt")
        os.makedirs(ckpt_dir, exist_ok=True)
        torch.save(torch.get_rng_state(), rng)
        dist.barrier()
        return ckpt_dir


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ckpt = Checkpointer(ROOT, {"model": model.module, "opt": opt})
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            opt.step()
        folder = ckpt.save_checkpoint()
    print(dist.get_rank(), folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
