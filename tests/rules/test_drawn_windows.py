"""Windows that each rank draws at random: overlapping, equal on some ranks or on all of them, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings
from test_data_and_device_rules import LOOP, SAMPLED, SETUP

from ddp_audit.audit import Options, audit


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


WINDOWS = (
    "def batch():\n    at = torch.randint(len(series) - 4, (8,))\n    return torch.stack([series[i : i + 4] for i in at])\n"
    "dist.init_process_group('gloo')\nseries = torch.arange(100.0)\ntorch.manual_seed(1 + dist.get_rank())\n"
    "model = DDP(torch.nn.Linear(4, 1))\nfor i in range(3):\n    model(batch()).sum().backward()\n"
)
WINDOWS_QUIET = {
    "own generator": WINDOWS.replace("(8,))", "(8,), generator=own)").replace(
        "model = DDP", "own = torch.Generator().manual_seed(dist.get_rank())\nmodel = DDP"
    ),
    "cut by rank": WINDOWS.replace("torch.arange(100.0)", "torch.arange(100.0)[dist.get_rank()::2]"),
    "permutation": WINDOWS.replace("torch.randint(len(series) - 4, (8,))", "torch.randperm(len(series) - 4)[:8]"),
    "not read": WINDOWS.replace("series[i : i + 4]", "torch.full((4,), i)"),
    "not trained": WINDOWS.replace("    model(batch()).sum().backward()", "    model(batch())"),
    "no gradients": WINDOWS.replace("    model(batch()).sum().backward()", "    model(torch.ones(4)).sum().backward()")
    + "with torch.no_grad():\n    model(batch())\n",
    "one process": WINDOWS.replace("DDP(torch.nn.Linear(4, 1))", "torch.nn.Linear(4, 1)"),
    "augmentation": "class Set(Dataset):\n    def __getitem__(self, i):\n"
    "        other = torch.randint(len(self.items), (1,))\n        return self.items[i] + self.items[other]\n"
    + SETUP
    + SAMPLED
    + LOOP,
}


def test_random_windows(tmp_path: Path) -> None:
    (finding,) = findings("DDP309", audited(tmp_path, HEAD + WINDOWS))
    assert finding.severity == "info" and finding.span.line == HEAD.count("\n") + 2
    assert {r.role for r in finding.related} == {"seed"}


def test_random_windows_with_equal_seeds(tmp_path: Path) -> None:
    (finding,) = findings("DDP309", audited(tmp_path, HEAD + WINDOWS.replace("1 + dist.get_rank()", "1")))
    assert finding.severity == "warning" and "the same windows" in finding.message


def test_random_windows_and_an_evaluation_of_rank_0(tmp_path: Path) -> None:
    text = WINDOWS + "    if dist.get_rank() == 0:\n        with torch.no_grad():\n            model.module(batch())\n"
    (finding,) = findings("DDP309", audited(tmp_path, HEAD + text))
    assert "only rank 0 draws from the same stream" in finding.message
    assert {"guard", "draw", "seed", "call"} <= {r.role for r in finding.related}


EVALUATES = "    if dist.get_rank() == 0:\n        with torch.no_grad():\n            model.module(batch())\n"
OWN = {
    "torch": ("gen = torch.Generator().manual_seed(SEED)", "torch.randint(len(series) - 4, (8,), generator=gen)"),
    "torch, seeded later": (
        "gen = torch.Generator()\ngen.manual_seed(SEED)",
        "torch.randint(len(series) - 4, (8,), generator=gen)",
    ),
    "length kept": ("gen = torch.Generator().manual_seed(SEED)\nn = len(series)", "torch.randint(n - 4, (8,), generator=gen)"),
    "numpy": ("import numpy as np\ngen = np.random.default_rng(SEED)", "gen.integers(0, len(series) - 4, size=8)"),
    "numpy, old": ("import numpy as np\ngen = np.random.RandomState(SEED)", "gen.randint(0, len(series) - 4, 8)"),
    "numpy, bits": (
        "import numpy as np\ngen = np.random.Generator(np.random.PCG64(SEED))",
        "gen.choice(len(series) - 4, size=8)",
    ),
    "python": ("import random\ngen = random.Random(SEED)", "gen.sample(range(len(series) - 4), 8)"),
}


def _own(style: str, seed: str) -> str:
    made, drawn = OWN[style]
    text = WINDOWS.replace("torch.manual_seed(1 + dist.get_rank())", made.replace("SEED", seed))
    return HEAD + text.replace("torch.randint(len(series) - 4, (8,))", drawn)


@pytest.mark.parametrize("style", OWN)
def test_windows_of_a_generator_with_one_seed(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP309", audited(tmp_path, _own(style, "3")))
    assert finding.severity == "warning" and "all ranks train on the same windows" in finding.message
    (finding,) = findings("DDP309", audited(tmp_path, _own(style, "3") + EVALUATES))
    assert finding.severity == "warning" and "ranks 1, 2 and 3 of 4 train on the same windows" in finding.message
    assert findings("DDP309", audited(tmp_path, _own(style, "3 + dist.get_rank()"))) == []


@pytest.mark.parametrize(
    ("guard", "alike"),
    [
        ("dist.get_rank() == 0", "ranks 1, 2 and 3 of 4"),
        ("i % 2 == 0 and dist.get_rank() == 0", "ranks 1, 2 and 3 of 4"),
        ("dist.get_rank() != 0", "ranks 1, 2 and 3 of 4"),
        ("dist.get_rank() == 3", "ranks 0, 1 and 2 of 4"),
        ("dist.get_rank() < 2", "ranks 0 and 1 of 4"),
    ],
)
def test_which_ranks_draw_the_same_windows(guard: str, alike: str, tmp_path: Path) -> None:
    text = WINDOWS.replace("1 + dist.get_rank()", "1") + EVALUATES.replace("dist.get_rank() == 0", guard)
    (finding,) = findings("DDP309", audited(tmp_path, HEAD + text))
    assert finding.severity == "warning" and alike in finding.message


def test_two_ranks_of_which_one_evaluates_do_not_draw_alike(tmp_path: Path) -> None:
    Path("train.py").write_text(HEAD + WINDOWS.replace("1 + dist.get_rank()", "1") + EVALUATES)
    found = {
        size: [f.severity for f in audit(["train.py"], Options(world_size=size)).findings if f.code == "DDP309"] for size in (2, 8)
    }
    assert found == {2: ["info"], 8: ["warning"]}


@pytest.mark.parametrize("style", WINDOWS_QUIET)
def test_other_draws_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP309", audited(tmp_path, HEAD + WINDOWS_QUIET[style])) == []


@pytest.mark.parametrize(
    "seed", ["1 + int(dist.get_rank() != 0)", "1 if dist.get_rank() == 0 else 2", "1 + min(dist.get_rank(), 1)"]
)
def test_a_seed_that_most_ranks_share(seed: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP309", audited(tmp_path, HEAD + WINDOWS.replace("1 + dist.get_rank()", seed)))
    assert finding.severity == "warning" and "ranks 1, 2 and 3 of 4 train on the same windows" in finding.message


@pytest.mark.parametrize("seed", ["1 + dist.get_rank() // 2", "1 + 10 * dist.get_rank()", "7 - dist.get_rank()"])
def test_seeds_of_single_ranks_and_of_pairs(seed: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP309", audited(tmp_path, HEAD + WINDOWS.replace("1 + dist.get_rank()", seed)))
    assert finding.severity == "info"
