# ends: completes
"""Evaluation on rank 0 alone on the inner module, the others wait at a barrier."""

import logging

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger(__name__)


def is_main_process():
    return not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0


@torch.no_grad()
def validate(model, loader):
    was_training = model.training
    model.eval()
    correct = total = 0
    for x, y in loader:
        prediction = model(x).argmax(dim=-1)
        correct += (prediction == y).sum().item()
        total += y.numel()
    model.train(was_training)
    return correct / total


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    x = torch.randn(96, 4)
    y = (x[:, 0] > 0).long()
    train_set, val_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=16)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in train_loader:
            loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if is_main_process():
            logger.info("accuracy %.3f", validate(model.module, val_loader))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
