"""DDP111 behind an option, and where the constructor came to the same place before the wrap."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings

HEAD = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
p = argparse.ArgumentParser()
p.add_argument("--init_from", default="scratch")
p.add_argument("--resume", action="store_true")
args = p.parse_args()
def draw(m):
    if isinstance(m, nn.Linear):
        torch.nn.init.normal_(m.weight, std=0.02)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        self.apply(self._init)
    def _init(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.normal_(m.weight, std=0.02)
    def forward(self, x):
        return self.fc(x)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(SEED)
net = Net()
BEFORE
model = DDP(net)
AFTER
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOAD = "model.module.load_state_dict(torch.load('ckpt.pt', map_location='cpu'))"


def text(after: str = "", before: str = "", seed: str = "1337 + rank") -> str:
    return HEAD.replace("SEED", seed).replace("BEFORE", before).replace("AFTER", after)


ERRORS = {
    "applied by a method of the model": text("model.module.apply(model.module._init)"),
    "applied by a function": text("model.apply(draw)"),
    "applied to a part": text("net.fc.apply(draw)"),
    "each module": text("for m in model.modules():\n    draw(m)"),
    "each module of the network": text(
        "for m in net.modules():\n    if isinstance(m, nn.Linear):\n        nn.init.normal_(m.weight)"
    ),
    "each named module": text("for name, m in model.module.named_modules():\n    if 'fc' in name:\n        m.reset_parameters()"),
    "each child": text("for m in model.module.children():\n    m.weight.data.normal_(0, 0.02)"),
    "the modules of a kind": text(
        "for m in [m for m in model.modules() if isinstance(m, nn.Linear)]:\n    nn.init.xavier_uniform_(m.weight)"
    ),
    "filtered modules": text(
        "for m in filter(lambda m: hasattr(m, 'weight'), model.modules()):\n    m.weight.data.uniform_(-1, 1)"
    ),
    "a function of the model": text("def draw_all(top):\n    for m in top.modules():\n        draw(m)\ndraw_all(model)"),
    "reset": text("net.fc.reset_parameters()"),
}
WARNINGS = {
    "one condition": text(f"if args.init_from == 'resume' and rank == 0:\n    {LOAD}"),
    "the other way round": text(f"if rank == 0 and args.init_from == 'resume':\n    {LOAD}"),
    "two conditions": text(f"if args.init_from == 'resume':\n    if rank == 0:\n        {LOAD}"),
    "a flag": text(f"if args.resume and not rank:\n    {LOAD}"),
    "a later arm": text(f"if args.init_from == 'scratch':\n    pass\nelif args.init_from == 'resume' and rank == 0:\n    {LOAD}"),
}
QUIET = {
    "each module before the wrap": text(before="for m in net.modules():\n    draw(m)"),
    "each module set to one number": text(
        "for m in model.modules():\n    if isinstance(m, nn.Linear):\n        nn.init.zeros_(m.bias)"
    ),
    "the mode of each module": text("for m in model.modules():\n    m.train()\n    m.tag = 1"),
    "the modules counted": text("print(sum(1 for m in model.modules() if isinstance(m, nn.Linear)))"),
    "modules of another model": text("other = Net()\nfor m in other.modules():\n    draw(m)"),
    "applied before the wrap": text(before="net.apply(draw)"),
    "one seed": text("model.apply(draw)", seed="1337"),
    "loaded on rank 0 before the wrap": text(
        before="if args.resume and rank == 0:\n    net.load_state_dict(torch.load('ckpt.pt'))"
    ),
    "loaded on all ranks": text(f"if args.init_from == 'resume':\n    {LOAD}"),
    "sent afterwards": text(
        f"if args.resume and rank == 0:\n    {LOAD}\nfor p in model.parameters():\n    dist.broadcast(p.data, 0)"
    ),
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", ERRORS)
def test_weights_that_are_drawn_anew_after_the_wrap(form: str, tmp_path: Path) -> None:
    found = findings("DDP111", audited(tmp_path, ERRORS[form]))
    assert [f.severity for f in found] == ["error"]


@pytest.mark.parametrize("form", WARNINGS)
def test_weights_that_an_option_loads_on_one_rank(form: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP111", audited(tmp_path, WARNINGS[form]))
    option = "resume" if "args.resume" in WARNINGS[form] else "init_from"
    assert finding.severity == "warning" and f"`{option}`" in finding.message and "rank 0" in finding.message


@pytest.mark.parametrize("form", QUIET)
def test_equal_replicas_are_left_alone(form: str, tmp_path: Path) -> None:
    assert findings("DDP111", audited(tmp_path, QUIET[form])) == []
