"""One random state restored on every rank (DDP310), in forms that no case has, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

START = HEAD + (
    "import pickle, random\nimport numpy as np\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
    "{seed}model = DDP(torch.nn.Linear(4, 1))\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
)
TRAIN = "for _ in range(3):\n    model(torch.randn(4, 4)).mean().backward()\n    opt.step()\n"
APART = "torch.manual_seed(rank)\nnp.random.seed(rank)\nrandom.seed(rank)\n"
RESTORES = [
    "state = torch.load('last.pt')\ntorch.set_rng_state(state['rng'])\n",
    "state = torch.load('last.pt')\nrandom.setstate(state['python'])\n",
    "state = torch.load('last.pt')\nnp.random.set_state(state.get('numpy'))\n",
    "def resume(path):\n    found = torch.load(path, map_location='cpu')\n    torch.random.set_rng_state(found['rng'].cpu())\nresume('last.pt')\n",
    "class R:\n    def __init__(self, s):\n        self.s = s\n    def go(self):\n        torch.set_rng_state(self.s['rng'])\nR(torch.load('last.pt')).go()\n",
    "torch.set_rng_state(new_state=torch.load('rng.pt'))\n",
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("restore", RESTORES)
def test_one_state_for_all_ranks(restore: str, tmp_path: Path) -> None:
    assert len(findings("DDP310", audited(tmp_path, START.format(seed=APART) + restore + TRAIN))) == 1
    alike = APART.replace("(rank)", "(7)")
    assert findings("DDP310", audited(tmp_path, START.format(seed=alike) + restore + TRAIN)) == []
    assert findings("DDP310", audited(tmp_path, START.format(seed=APART) + restore + APART + TRAIN)) == []
    alone = "if rank == 0:\n" + "".join(f"    {line}\n" for line in restore.splitlines())
    assert findings("DDP310", audited(tmp_path, START.format(seed=APART) + alone + TRAIN)) == []


@pytest.mark.parametrize(
    "restore",
    [
        "state = torch.load('last.pt')\ntorch.set_rng_state(state['rng'][rank])\n",
        "torch.set_rng_state(torch.load(f'rng{rank}.pt'))\n",
        "torch.set_rng_state(torch.load('rng_%d.pt' % dist.get_rank()))\n",
        "kept = torch.get_rng_state()\nmodel(torch.randn(4, 4))\ntorch.set_rng_state(kept)\n",
        "states = torch.load('last.pt')['states']\ntorch.set_rng_state(states[dist.get_rank()])\n",
    ],
)
def test_a_state_of_each_rank(restore: str, tmp_path: Path) -> None:
    assert findings("DDP310", audited(tmp_path, START.format(seed=APART) + restore + TRAIN)) == []
