"""Losses that are scaled by the world size where a wrapper averages over some ranks (DDP807), in forms that no case has."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import torch.nn.functional as F\ndist.init_process_group('gloo')\nrank = dist.get_rank()\nworld = int(os.environ['WORLD_SIZE'])\n"
    "half = world // 2\nlow, high = dist.new_group(list(range(half))), dist.new_group(list(range(half, world)))\n"
    "mine = low if rank < half else high\nmodel = DDP(torch.nn.Linear(4, 3), process_group={group})\n"
    "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nx, y = torch.randn(4, 4), torch.randint(3, (4,))\n"
    "n = torch.tensor(4.0)\ndist.all_reduce(n, group={counted})\nloss = F.cross_entropy(model(x), y, reduction='sum')\n"
    "{scaled}\nopt.zero_grad()\nloss.backward()\nopt.step()\n"
)
SCALED = [
    "loss = loss.mul(world) / n",
    "loss = loss / n\nloss *= world",
    "scale = dist.get_world_size() / n\nloss = loss * scale",
    "def scaled(value):\n    return value * world\nloss = scaled(loss / n)",
    "loss = world * loss / n if rank >= 0 else loss",
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("scaled", SCALED)
def test_the_size_of_the_job_where_a_part_averages(scaled: str, tmp_path: Path) -> None:
    assert len(findings("DDP807", audited(tmp_path, START.format(group="mine", counted="mine", scaled=scaled)))) == 1
    for right in ("None", "dist.new_group(list(range(world)))"):
        assert findings("DDP807", audited(tmp_path, START.format(group=right, counted="None", scaled=scaled))) == []


@pytest.mark.parametrize("scaled", SCALED)
def test_a_count_of_all_ranks_goes_with_their_number(scaled: str, tmp_path: Path) -> None:
    assert findings("DDP807", audited(tmp_path, START.format(group="mine", counted="None", scaled=scaled))) == []


@pytest.mark.parametrize("scaled", ["loss = loss * dist.get_world_size(mine) / n", "loss = loss * half / n", "loss = loss / n"])
def test_the_size_of_the_group(scaled: str, tmp_path: Path) -> None:
    assert findings("DDP807", audited(tmp_path, START.format(group="mine", counted="mine", scaled=scaled))) == []


@pytest.mark.parametrize(
    "groups",
    [
        "for k in range(2):\n    ranks = list(range(k, world, 2))\n    g = dist.new_group(ranks)\n    if rank in ranks:\n        mine = g\n",
        "gs = [dist.new_group(range(k, world, 2)) for k in range(2)]\nmine = gs[rank % 2]\n",
        "low, high = dist.new_group([0, 2]), dist.new_group([1, 3])\nmine = high if rank % 2 else low\n",
    ],
)
def test_a_sampler_cuts_the_data_by_replicas(groups: str, tmp_path: Path) -> None:
    text = (
        START.split("half")[0]
        + groups
        + (
            "model = DDP(torch.nn.Linear(4, 3), process_group={group})\nds = TensorDataset(torch.randn(64, 4))\n"
            "sampler = DistributedSampler(ds, num_replicas=world // 2, rank=rank // 2)\nfor (x,) in DataLoader(ds, 8, sampler=sampler):\n"
            "    model(x).sum().backward()\n"
        )
    )
    assert findings("DDP303", audited(tmp_path, text.format(group="mine"))) == []
    assert len(findings("DDP303", audited(tmp_path, text.format(group="None")))) == 1
