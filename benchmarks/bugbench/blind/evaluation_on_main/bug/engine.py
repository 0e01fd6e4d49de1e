"""One epoch of training, and the accuracy on a loader."""

import torch


class Average:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, count):
        self.total += value * count
        self.count += count

    def value(self):
        return self.total / max(self.count, 1)


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    losses = Average()
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.add(loss.item(), len(labels))
    return losses.value()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    accuracy = Average()
    for images, labels in loader:
        # the held-out set is small, so one process does it
        logits = model(images)
        hits = (logits.argmax(1) == labels).float().mean()
        accuracy.add(hits.item(), len(labels))
    return accuracy.value()
