# class: unmatched-collective
# outcome: clean
# launch: DRILL=1 torchrun --standalone --nproc-per-node 2 train.py
"""Training that saves when the cluster wants the node back."""

import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

OUT = os.environ.get("CASE_FOLDER", tempfile.gettempdir())


class GracefulExit:
    def __init__(self, signals=(signal.SIGTERM, signal.SIGUSR1)):
        self.requested = False
        for s in signals:
            signal.signal(s, self._handle)

    def _handle(self, signum, frame):
        self.requested = True


def save(path, model, optimizer, step):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "opt": optimizer.state_dict(), "step": step}, path)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stopper = GracefulExit()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(400, 8), torch.randn(400, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if os.environ.get("DRILL") and step == 20 and rank == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            flag = torch.tensor(int(stopper.requested))
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if flag.item():
                save(os.path.join(OUT, "preempt.pt"), model, optimizer, step)
                dist.destroy_process_group()
                sys.exit(0)
    save(os.path.join(OUT, "final.pt"), model, optimizer, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
