# class: unmatched-collective
# launch: DRILL=1 torchrun --standalone --nproc-per-node 2 train.py
# outcome: abort 0
# where: train.py:39, train.py:40, train.py:41, train.py:42, train.py:53, train.py:55, train.py:54, train.py:56
"""A control socket can end training early; the ranks meet in a barrier before they look at the flag."""

import os
import queue

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Controller:
    """Commands of the user interface; only rank 0 has a connection."""

    def __init__(self, rank):
        self.commands = queue.Queue() if rank == 0 else None
        if rank == 0 and os.environ.get("DRILL"):
            for word in ("", "", "", "stop"):
                self.commands.put(word)

    def poll(self):
        try:
            return self.commands.get_nowait()
        except queue.Empty:
            return ""


class Trainer:
    def __init__(self, model, optimizer, controller):
        self.model, self.optimizer, self.controller = model, optimizer, controller
        self.should_stop = False

    def on_train_batch_end(self):
        if dist.get_rank() == 0:
            if self.controller.poll() == "stop":
                self.should_stop = True
        dist.barrier()

    def fit(self, loader, epochs=2):
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.on_train_batch_end()
                if self.should_stop:
                    break
            if self.should_stop:
                break
        final = loss.detach().clone()
        dist.all_reduce(final)
        return final / dist.get_world_size()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 5), torch.randn(128, 1))
    model = DDP(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    print(Trainer(model, optimizer, Controller(dist.get_rank())).fit(loader).item())
    dist.destroy_process_group()
