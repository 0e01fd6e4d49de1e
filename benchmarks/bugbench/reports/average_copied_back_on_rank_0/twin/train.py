# class: unsynchronised
# outcome: clean
"""'Switch EMA': every few steps the averaged weights are put back into the online model."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_every=2, update_model_every=None):
        super().__init__()
        self.online = [model]
        self.ema_model = copy.deepcopy(model).requires_grad_(False)
        self.beta = beta
        self.update_every = update_every
        self.update_model_every = update_model_every
        self.step = 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        if self.step % self.update_every == 0:
            for e, p in zip(self.ema_model.parameters(), self.online[0].parameters()):
                e.lerp_(p, 1 - self.beta)
        if self.update_model_every and self.step % self.update_model_every == 0:
            self.copy_to_online()

    @torch.no_grad()
    def copy_to_online(self):
        for e, p in zip(self.ema_model.parameters(), self.online[0].parameters()):
            p.copy_(e)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(160, 10), torch.randn(160, 2))
    net = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 2))
    model = DDP(net)
    ema = EMA(net, update_model_every=5)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            opt.step()
            ema.update()
    if rank == 0:
        torch.save(ema.ema_model.state_dict(), os.path.join(os.environ.get("CASE_FOLDER", "out"), "ema.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
