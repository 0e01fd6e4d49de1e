"""Which random streams a seed starts, however it was imported, and the rules that ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

from ddp_audit.program.nodes import Seed
from ddp_audit.program.values import CLOCK, RANDOM, RANK
from ddp_audit.tree.questions import one_stream, seed_of_all, seeds_of

STREAMS = ("torch", "cuda", "numpy", "random")
SEEDS = {
    "import torch\ntorch.manual_seed(3)": "torch cuda",
    "from torch import manual_seed\nmanual_seed(3)": "torch cuda",
    "from torch.random import manual_seed as seeded\nseeded(seed=3)": "torch cuda",
    "import torch\ntorch.cuda.manual_seed(3)": "cuda",
    "from torch.cuda import manual_seed_all\nmanual_seed_all(3)": "cuda",
    "import numpy as np\nnp.random.seed(3)": "numpy",
    "from numpy.random import seed\nseed(3)": "numpy",
    "from numpy import random\nrandom.seed(3)": "numpy",
    "import numpy.random as npr\nnpr.seed(seed=3)": "numpy",
    "import random\nrandom.seed(3)": "random",
    "import random as r\nr.seed(a=3)": "random",
    "from random import seed\nseed(3)": "random",
    "from lightning.pytorch import seed_everything\nseed_everything(3, workers=True)": "torch cuda numpy random",
    "from transformers import set_seed\nset_seed(3)": "torch cuda numpy random",
    "from accelerate.utils import set_seed\nset_seed(3, device_specific=False)": "torch cuda numpy random",
    "def seed(n):\n    import random\n    random.seed(n)\nseed(3)": "random",
    # Names that only look like it
    "from library import manual_seed\nmanual_seed(3)": "",
    "import library\nlibrary.random.seed(3)": "",
    "import torch\ntorch.Generator().manual_seed(3)": "",
    "import numpy as np\nnp.random.default_rng(3)": "",
    "import random\nrandom.Random(3)": "",
    "def manual_seed(n):\n    pass\nmanual_seed(3)": "",
}
UNEQUAL = {
    "from numpy.random import seed\nseed()": RANDOM,
    "import random\nrandom.seed()": RANDOM,
    "import torch\ntorch.seed()": RANDOM,
    "import torch, time\ntorch.manual_seed(int(time.time()))": CLOCK,
    "from accelerate.utils import set_seed\nset_seed(3, device_specific=True)": RANK,
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", SEEDS)
def test_the_streams_that_a_seed_starts(text: str, tmp_path: Path) -> None:
    program = audited(tmp_path, text + "\n").program
    assert [name for name in STREAMS if seeds_of(program, name)] == SEEDS[text].split()
    assert all(seed_of_all(seed) == 3 for seed in seeds_of(program, *STREAMS))
    assert [name for name in STREAMS if one_stream(program, name)] == SEEDS[text].split()


@pytest.mark.parametrize("text", UNEQUAL)
def test_a_seed_of_each_process_is_not_one_stream(text: str, tmp_path: Path) -> None:
    program = audited(tmp_path, text + "\n").program
    (seed,) = program.of(Seed)
    assert UNEQUAL[text] in seed.seed.taint
    assert not any(one_stream(program, name) for name in STREAMS)


DDP = "dist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(4, 1))\n"
NOISE = {
    "torch": "for i in range(3):\n    model(torch.randn(2, 4)).sum().backward()\n",
    "numpy": "import numpy\nfor i in range(3):\n    model(torch.tensor(numpy.random.randn(2, 4))).sum().backward()\n",
}
WINDOWS = (
    "data = torch.ones(99, 4)\nfor i in range(3):\n    at = torch.randint(len(data), (2,))\n    model(data[at]).sum().backward()\n"
)
SPLIT = (
    "points = TensorDataset(torch.ones(8, 4))\ndata, rest = torch.utils.data.random_split(points, [6, 2])\n"
    "for x in DataLoader(data, sampler=DistributedSampler(data)):\n    model(x[0]).sum().backward()\n"
)


@pytest.mark.parametrize(
    ("seed", "streams"),
    [
        ("from torch import manual_seed\nmanual_seed(3)\n", ["torch"]),
        ("from numpy.random import seed\nseed(3)\n", ["numpy"]),
        ("from random import seed\nseed(3)\n", []),
        ("from transformers import set_seed\nset_seed(3)\n", ["torch", "numpy"]),
    ],
)
def test_the_rules_see_bare_imports(seed: str, streams: list[str], tmp_path: Path) -> None:
    alike = [name for name, noise in NOISE.items() if findings("DDP308", audited(tmp_path, HEAD + seed + DDP + noise))]
    assert alike == streams
    (windows,) = findings("DDP309", audited(tmp_path, HEAD + seed + DDP + WINDOWS))
    assert (windows.severity == "warning") == ("torch" in streams)
    assert (findings("DDP306", audited(tmp_path, HEAD + seed + DDP + SPLIT)) == []) == ("torch" in streams)
