# ends: completes
"""Callbacks in a list, called by the name of the hook."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Callback:
    def on_fit_start(self, trainer):
        pass

    def on_batch_end(self, trainer, loss):
        pass

    def on_epoch_end(self, trainer):
        pass


class History(Callback):
    def __init__(self):
        self.losses = []

    def on_batch_end(self, trainer, loss):
        self.losses.append(loss)

    def on_epoch_end(self, trainer):
        mean = torch.tensor(sum(self.losses) / len(self.losses))
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        trainer.metrics["loss"] = mean.item() / dist.get_world_size()
        self.losses.clear()


class Printer(Callback):
    def on_epoch_end(self, trainer):
        if dist.get_rank() == 0:
            print(trainer.epoch, trainer.metrics)


class Barrier(Callback):
    def __init__(self, every):
        self.every = every

    def on_epoch_end(self, trainer):
        if (trainer.epoch + 1) % self.every == 0:
            dist.barrier()


class Fitter:
    def __init__(self, model, callbacks):
        self.model = model
        self.callbacks = callbacks
        self.metrics = {}
        self.epoch = 0

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def fit(self, batches, epochs):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.call("on_fit_start")
        for self.epoch in range(epochs):
            for batch in batches:
                loss = self.model(batch).abs().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.call("on_batch_end", loss.item())
            self.call("on_epoch_end")


dist.init_process_group("gloo")
batches = [torch.full((4, 3), float(i)) for i in range(5)]
fitter = Fitter(DDP(nn.Linear(3, 2)), [History(), Printer(), Barrier(every=2)])
fitter.fit(batches, epochs=4)
dist.destroy_process_group()
