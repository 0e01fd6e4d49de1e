# ends: completes
"""K folds, one model each, with index arithmetic, a Counter of classes and results in a dict."""

from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

FOLDS = 3


def folds(n, k):
    edges = [n * i // k for i in range(k + 1)]
    for low, high in zip(edges, edges[1:]):
        held = list(range(low, high))
        yield [i for i in range(n) if i not in set(held)], held


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    labels = [i % 3 for i in range(31)]
    weights = Counter(labels)
    data = TensorDataset(torch.randn(31, 4), torch.tensor(labels))
    class_weights = torch.tensor([len(labels) / weights[c] for c in sorted(weights)])
    results = {}
    for fold, (train, held) in enumerate(folds(len(data), FOLDS)):
        subset = Subset(data, train)
        sampler = DistributedSampler(subset, drop_last=True)
        model = DDP(nn.Linear(4, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(subset, batch_size=6, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y, weight=class_weights).backward()
            optimizer.step()
        with torch.no_grad():
            x, y = data[held]
            hits = (model.module(x).argmax(1) == y).float().sum()
        dist.all_reduce(hits)
        results[fold] = hits.item() / (len(held) * dist.get_world_size())
    if dist.get_rank() == 0:
        best = max(results, key=results.get)
        print("best fold", best, len(results) == FOLDS)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
