"""Rules on what the ranks draw, how data is shared out, and what is evaluated: other styles of a hazard, look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import FORWARD, SEED, Event

CODES = ["DDP308"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("code", CODES)
def test_examples(code: str, tmp_path: Path) -> None:
    rule = rules()[code]
    bad = findings(code, audited(tmp_path, rule.bad))
    assert [(f.code, f.severity) for f in bad] == [(code, rule.level)]
    assert bad[0].message.endswith(".") and "\n" not in bad[0].message
    assert findings(code, audited(tmp_path, rule.good), "possible") == []


def run_of(*ranks: list[Event]) -> RecordedRun:
    """A whole run of these ranks."""
    return RecordedRun(len(ranks), {n: RankRun(n, events, EXITED) for n, events in enumerate(ranks)}, complete=True)


# ---- random streams

SETUP = "dist.init_process_group('gloo')\n"
MODEL = "model = DDP(torch.nn.Linear(4, 1))\n"
NOISE = "for i in range(3):\n    model(torch.randn(2, 4)).sum().backward()\n"
SET = (
    "class Set(Dataset):\n    def __len__(self):\n        return 8\n    def __getitem__(self, i):\n"
    "        return self.shift(torch.ones(4))\n    def shift(self, x):\n        return x + random.random()\n"
)
SAMPLED = "sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"
LOOP = "for x in loader:\n    model(x).sum().backward()\n"

ONE_STREAM = {
    "noise": f"{SETUP}torch.manual_seed(0)\n{MODEL}{NOISE}",
    "numpy": f"import numpy as np\n{SETUP}np.random.seed(0)\n{MODEL}for i in range(3):\n"
    "    model(torch.tensor(np.random.randn(2, 4))).sum().backward()\n",
    "in place": f"{SETUP}torch.manual_seed(0)\n{MODEL}for i in range(3):\n    model(torch.empty(2, 4).normal_()).sum().backward()\n",
    "option": f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int, default=1)\na = p.parse_args()\n"
    f"{SETUP}torch.manual_seed(a.seed)\n{MODEL}{NOISE}",
    "data set": f"import random\n{SET}{SETUP}random.seed(1)\n{MODEL}data = Set()\n{SAMPLED}{LOOP}",
    "model": f"class Net(torch.nn.Module):\n    def forward(self, x):\n        return x + torch.rand_like(x)\n"
    f"{SETUP}torch.manual_seed(1)\nmodel = DDP(Net())\nfor i in range(3):\n    model(torch.ones(4)).sum().backward()\n",
    "transform": f"from torchvision import transforms\nfrom torchvision.datasets import CIFAR10\n{SETUP}torch.manual_seed(1)\n{MODEL}"
    f"data = CIFAR10('x', transform=transforms.Compose([transforms.RandomCrop(32)]))\n{SAMPLED}{LOOP}",
    "parent": "def run(rank):\n    dist.init_process_group('gloo', rank=rank, world_size=2)\n    model = DDP(torch.nn.Linear(4, 1))\n"
    "    for i in range(3):\n        model(torch.ones(4)).sum().backward()\ntorch.manual_seed(1)\n"
    "torch.multiprocessing.spawn(run, nprocs=2)\n",
}
STREAMS_APART = {
    "by rank": f"{SETUP}torch.manual_seed(dist.get_rank())\n{MODEL}{NOISE}",
    "by rank later": f"{SETUP}torch.manual_seed(0)\n{MODEL}torch.manual_seed(5 + int(os.environ['RANK']))\n{NOISE}",
    "never seeded": f"{SETUP}{MODEL}{NOISE}",
    "another library": f"import numpy as np\n{SETUP}np.random.seed(0)\n{MODEL}{NOISE}",
    "generator": f"{SETUP}torch.manual_seed(0)\n{MODEL}g = torch.Generator()\n{NOISE.replace('(2, 4)', '(2, 4, generator=g)')}",
    "before the loop": f"{SETUP}torch.manual_seed(0)\n{MODEL}x = torch.randn(2, 4)\nfor i in range(3):\n"
    "    model(x).sum().backward()\n",
    "evaluation": f"{SETUP}torch.manual_seed(0)\n{MODEL}for i in range(3):\n    model(torch.ones(4)).sum().backward()\n"
    "    with torch.no_grad():\n        for j in range(2):\n            model(torch.randn(2, 4))\n",
    "rank 0": f"{SETUP}torch.manual_seed(0)\n{MODEL}for i in range(3):\n    if dist.get_rank() == 0:\n        print(torch.rand(1))\n"
    "    model(torch.ones(4)).sum().backward()\n",
    "generation": f"class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n    def generate(self):\n"
    f"        return torch.multinomial(torch.ones(4), 1)\n{SETUP}torch.manual_seed(1)\nmodel = DDP(Net())\nfor i in range(3):\n"
    "    model(torch.ones(4)).sum().backward()\n",
    "one process": f"torch.manual_seed(0)\nmodel = torch.nn.Linear(4, 1)\n{NOISE}",
    "spawned rank": "def run(rank):\n    dist.init_process_group('gloo', rank=rank, world_size=2)\n    torch.manual_seed(rank)\n"
    "    model = DDP(torch.nn.Linear(4, 1))\n    for i in range(3):\n        model(torch.randn(4)).sum().backward()\n"
    "torch.manual_seed(1)\ntorch.multiprocessing.spawn(run, nprocs=2)\n",
}


@pytest.mark.parametrize("style", ONE_STREAM)
def test_one_random_stream(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP308", audited(tmp_path, HEAD + ONE_STREAM[style]))
    assert finding.severity == "info" and {"draw", "spawn"} & {r.role for r in finding.related}


@pytest.mark.parametrize("style", STREAMS_APART)
def test_streams_of_their_own_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP308", audited(tmp_path, HEAD + STREAMS_APART[style])) == []


def test_a_seed_that_is_off_by_default_is_only_possible(tmp_path: Path) -> None:
    text = (
        ONE_STREAM["option"]
        .replace("default=1", "default=None")
        .replace("torch.manual_seed(a.seed)", "if a.seed is not None:\n    torch.manual_seed(a.seed)")
    )
    context = audited(tmp_path, HEAD + text)
    assert findings("DDP308", context) == [] and len(findings("DDP308", context, "possible")) == 1


@pytest.mark.parametrize(
    ("seeds", "batches", "verdict"),
    [((1, 1), "ab", "confirmed"), ((1, 2), "ab", "not-observed"), ((1, 2), "aa", "confirmed"), ((1, None), "ab", "not-covered")],
)
def test_seeds_in_a_run(seeds: tuple[int | None, ...], batches: str, verdict: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP308", audited(tmp_path, rules()["DDP308"].bad))
    ranks = [
        [Event(SEED, detail={"seed": seed})] * (seed is not None) + [Event(FORWARD, detail={"grad": True, "batch": batch})]
        for seed, batch in zip(seeds, batches, strict=True)
    ]
    assert rules()["DDP308"].witness(finding, run_of(*ranks)) == verdict
