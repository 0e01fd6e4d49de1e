import torch
import torch.nn.functional as F
from utils import reduce_dict


def train_one_epoch(model, loader, optimizer, epoch, clip):
    model.train()
    sums = {"loss": torch.zeros(())}
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        sums["loss"] += loss.detach()
    return {f"train_{k}": v for k, v in reduce_dict(sums).items()}


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = torch.zeros(2)
    for x, y in loader:
        hits += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    return reduce_dict({"hits": hits[0], "seen": hits[1]}, average=False)
