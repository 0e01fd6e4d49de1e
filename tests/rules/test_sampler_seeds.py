"""Seeds of samplers that differ between ranks: by the rank, by the clock, and in one arm of a condition (DDP303)."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import argparse\nimport random\nimport time\ndist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--seed', type=int, default=None)\nargs = parser.parse_args()\n"
    "data = TensorDataset(torch.randn(64, 4))\n"
)
SAMPLER = "sampler = DistributedSampler(data, seed=seed)\n"
DIFFER = {
    "in one arm by the environment": "seed = rank if os.environ.get('OWN') else 0\n",
    "in one arm of an if": "if os.path.exists('seed.txt'):\n    seed = 3 + rank\nelse:\n    seed = 0\n",
    "in the other arm": "seed = 5 if os.environ.get('SAME') else 10 * rank\n",
    "in an arm of an arm": "seed = 5 if os.environ.get('A') else (rank if os.environ.get('B') else 3)\n",
    "without the option": "seed = args.seed if args.seed is not None else rank\n",
    "the clock without the option": "seed = args.seed or int(time.time())\n",
    "the clock beside other seeds": "torch.manual_seed(3)\nseed = int(time.time())\n",
    "the clock in nanoseconds beside other seeds": "random.seed(1)\nseed = time.time_ns() % 1000\n",
}
EQUAL = {
    "equal in both arms": "seed = 3 if os.environ.get('OWN') else 0\n",
    "by rank where there is no group": "seed = 0 if dist.is_initialized() else rank\n",
    "by rank where there is one rank": "seed = 0 if world > 1 else rank\n",
    "the clock of one rank": "t = torch.tensor(int(time.time()))\ndist.broadcast(t, 0)\nseed = int(t)\n",
    "drawn after a seed for all": "random.seed(1)\nseed = random.randint(0, 9)\n",
    "of the epoch": "seed = 3 + int(os.environ.get('EPOCH', 0))\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", DIFFER.values(), ids=DIFFER)
def test_a_seed_that_may_differ(seed: str, tmp_path: Path) -> None:
    assert findings("DDP303", audited(tmp_path, START + seed + SAMPLER))
    assert not findings("DDP303", audited(tmp_path, START + seed + SAMPLER.replace("seed=seed", "seed=seed, shuffle=False")))


@pytest.mark.parametrize("seed", EQUAL.values(), ids=EQUAL)
def test_a_seed_that_is_one(seed: str, tmp_path: Path) -> None:
    assert not findings("DDP303", audited(tmp_path, START + seed + SAMPLER))
