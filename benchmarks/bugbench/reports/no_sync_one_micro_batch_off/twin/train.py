# class: unsynchronised
# outcome: clean
import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class AsrTrainer:
    def __init__(self, accum_grad: int, use_ddp: bool, max_epoch: int = 1):
        self.accum_grad = accum_grad
        self.use_ddp = use_ddp
        self.max_epoch = max_epoch

    def run(self, model, optim, loader, sampler):
        for epoch in range(self.max_epoch):
            sampler.set_epoch(epoch)
            self.train_epoch(model, optim, loader)

    def train_epoch(self, model, optim, loader):
        model.train()
        optim.zero_grad()
        for batch_idx, batch in enumerate(loader):
            my_context = nullcontext
            if self.use_ddp and (batch_idx + 1) % self.accum_grad != 0:
                my_context = model.no_sync
            with my_context():
                loss = self.forward_step(model, batch) / self.accum_grad
                loss.backward()
            self.update_step(model, optim, batch_idx)

    def forward_step(self, model, batch):
        speech, text = batch
        return F.cross_entropy(model(speech), text)

    def update_step(self, model, optim, batch_idx):
        if (batch_idx + 1) % self.accum_grad == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optim.step()
            optim.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accum-grad", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(128, 20), torch.randint(0, 5, (128,)))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5)))
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    AsrTrainer(args.accum_grad, dist.get_world_size() > 1).run(model, optim, loader, sampler)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
