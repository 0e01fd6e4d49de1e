"""DDP801: losses whose mean goes over what each rank's own batch lets through, and counts that are alike everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings

PROGRAM = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from rows import Rows
CLASSES
dist.init_process_group("gloo")
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = Rows()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False), drop_last=True)
SETUP
for x, y in loader:
    LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
HARD = """
class Hard(nn.Module):
    def __init__(self, limit, void=255):
        super(Hard, self).__init__()
        self.limit, self.void = -torch.log(torch.tensor(limit)), void
        self.each = nn.CrossEntropyLoss(ignore_index=void, reduction="none")

    def forward(self, logits, labels):
        least = labels[labels != self.void].numel() // 16
        losses = self.each(logits, labels).view(-1)
        kept = losses[losses > self.limit]
        if kept.numel() < least:
            kept, _ = losses.topk(least)
        return torch.mean(kept)
"""
DERIVED = """
class Losses(nn.CrossEntropyLoss):
    def __init__(self, aux=False, weight=None, ignore_index=255):
        super().__init__(weight, None, ignore_index)
        self.aux = aux

    def forward(self, *inputs):
        if not self.aux:
            return super(Losses, self).forward(*inputs)
        first, second, target = tuple(inputs)
        return super().forward(first, target) + 0.4 * super().forward(second, target)
"""
MASKED = """
def distance(out, target, noise, mask=None):
    loss = torch.norm(out - target, dim=-1, keepdim=True)
    factor = torch.ones_like(loss)
    factor[torch.where(noise == 0)] *= 3
    loss = loss * factor
    if mask is not None:
        loss = loss[mask]
    return torch.mean(loss)
"""
EACH = 'each = F.cross_entropy(model(x), y, reduction="none")'

OWN = {
    "padding is class 0": ("", "", "loss = F.cross_entropy(model(x), y, ignore_index=0)"),
    "void is class 255": ("", "f = nn.CrossEntropyLoss(ignore_index=255)", "loss = f(model(x), y)"),
    "by position": ("", "f = nn.NLLLoss(None, None, 1)", "loss = f(model(x).log_softmax(1), y)"),
    "a class of its own": (DERIVED, "f = Losses()", "loss = f(model(x), y)"),
    "two heads": (DERIVED, "f = Losses(True)", "first, second = model(x)\n    loss = f(first, second, y)"),
    "hard examples": (HARD, "f = Hard(0.7)", "loss = f(model(x), y)"),
    "hard examples of several heads": (
        HARD,
        "fs = [Hard(0.7) for _ in range(2)]",
        "out = model(x)\n    each = [f(o, y) for f, o in zip(fs, out)]\n    loss = sum(each)",
    ),
    "a mask that may be given": (MASKED, "", "loss = distance(model(x), y, y[:, 0], mask=y.mask)"),
    "the number of those kept": (
        "",
        "",
        "each = (model(x) - y).pow(2)\n    kept = torch.masked_select(each, each.detach() > 0.3)\n    loss = kept.sum() / kept.numel()",
    ),
    "the length of a selection": ("", "", f"{EACH}\n    loss = each.sum() / len(y[y > 0])"),
    "its shape": ("", "", f"{EACH}\n    loss = each.sum() / y[y != 255].shape[0]"),
}
ALIKE = {
    "a number that nothing is seen to put in": ("", "f = nn.CrossEntropyLoss(ignore_index=-1)", "loss = f(model(x), y)"),
    "as many on all ranks": ("", "", f"{EACH}\n    top, _ = each.topk(8)\n    loss = top.mean()"),
    "counted on all ranks": (
        "",
        "",
        f"{EACH}\n    n = (y != 255).sum()\n    dist.all_reduce(n)\n    loss = each.sum() * dist.get_world_size() / n",
    ),
    "all elements": ("", 'f = nn.CrossEntropyLoss(ignore_index=255, reduction="sum")', "loss = f(model(x), y) / y.numel()"),
    "zeros count": ("", 'f = nn.CrossEntropyLoss(ignore_index=255, reduction="none")', "loss = f(model(x), y).mean()"),
    "a window": ("", "", "loss = F.cross_entropy(model(x), y[:, 1:])"),
    "rows by number": ("", "", f"{EACH}\n    loss = each[[0, 2]].mean()"),
    "only where there is a mask": (
        "",
        "",
        f"{EACH}\n    mask = data.mask\n    if mask is not None:\n        loss = (each * mask).sum() / mask.sum()\n"
        "    else:\n        loss = each.mean()",
    ),
    "weights": ("", "f = nn.CrossEntropyLoss(torch.ones(4))", "loss = f(model(x), y)"),
}


def program(parts: tuple[str, str, str]) -> str:
    return PROGRAM.replace("CLASSES", parts[0]).replace("SETUP", parts[1]).replace("LOSS", parts[2])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", OWN)
def test_a_mean_over_a_number_of_its_own(form: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP801", audited(tmp_path, program(OWN[form])))
    assert finding.severity == "warning"


@pytest.mark.parametrize("form", ALIKE)
def test_a_mean_over_as_many_on_every_rank(form: str, tmp_path: Path) -> None:
    assert findings("DDP801", audited(tmp_path, program(ALIKE[form]))) == []
