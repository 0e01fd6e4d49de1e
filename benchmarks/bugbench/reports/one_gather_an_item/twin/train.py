# class: unmatched-collective
# outcome: clean
"""Segmentation evaluation: masks of very different number per image are put together over the ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def gather_all_tensors(t):
    out = [torch.zeros_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t.contiguous())
    return out


class MeanAveragePrecision:
    def __init__(self):
        self.detections = []
        self.labels = []

    def update(self, masks, labels):
        for m, label in zip(masks, labels):
            self.detections.append(m)
            self.labels.append(label)

    def _sync_dist(self):
        boxes = [None] * dist.get_world_size()
        dist.all_gather_object(boxes, self.detections)
        self.detections = [item for part in boxes for item in part]

    def compute(self):
        self._sync_dist()
        return torch.stack([d.float().mean() for d in self.detections]).mean()


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 16)

    def forward(self, x):
        return self.net(x)


def postprocess(logits):
    """Keeps what is above the threshold: another number of masks for each image."""
    keep = logits.mean(1) > 0
    return (logits[keep] > 0), keep.nonzero().flatten()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 16))
    sampler = DistributedSampler(data)
    train_loader = DataLoader(data, batch_size=8, sampler=sampler)
    val_loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(Segmenter())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for (x,) in train_loader:
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        metric = MeanAveragePrecision()
        with torch.no_grad():
            for (x,) in val_loader:
                metric.update(*postprocess(model.module(x)))
        value = metric.compute()
        if rank == 0:
            print(epoch, value.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
