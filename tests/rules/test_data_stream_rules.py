"""Rules on what the ranks draw, how data is shared out, and what is evaluated: other styles of a hazard, look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import FORWARD, SAMPLER, SEED, Event
from ddp_audit.launch import read_command

CODES = ["DDP303", "DDP304", "DDP305", "DDP306", "DDP308"]


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
    "    for i in range(3):\n        model(torch.ones(4)).sum().backward()\n"
    "if __name__ == '__main__':\n    torch.manual_seed(1)\n    torch.multiprocessing.spawn(run, nprocs=2)\n",
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
    [
        ((1, 1), ("xy", "zw"), "not-exercised"),  # the sampler shares out, or a generator of its own draws
        ((1, 2), ("xy", "zw"), "not-observed"),
        ((1, 2), ("xy", "xy"), "confirmed"),
        ((1, 2), ("xx", "xx"), "not-observed"),  # an input that never changes
        ((1, None), ("xy", "zw"), "not-exercised"),
    ],
)
def test_seeds_in_a_run(seeds: tuple[int | None, ...], batches: tuple[str, str], verdict: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP308", audited(tmp_path, rules()["DDP308"].bad))
    ranks = [
        [Event(SEED, detail={"seed": seed})] * (seed is not None) + [Event(FORWARD, detail={"grad": True, "batch": b}) for b in own]
        for seed, own in zip(seeds, batches, strict=True)
    ]
    assert rules()["DDP308"].verify(finding, run_of(*ranks)) == verdict


# ---- data sets that differ

TRAINED = "loader = DataLoader(data, sampler=DistributedSampler(data))\nfor x in loader:\n    model(x[0]).sum().backward()\n"
POINTS = "points = TensorDataset(torch.ones(8, 4))\n"
LISTED = (
    "class Set(Dataset):\n    def __init__(self, root):\n        self.files = {}\n    def __len__(self):\n"
    "        return len(self.files)\n    def __getitem__(self, i):\n        return torch.load(self.files[i])\n"
)
LISTING = f"import glob\n{{}}{SETUP}{MODEL}data = Set('x')\n{TRAINED}"

DIFFERENT = {
    "split": (f"{SETUP}{MODEL}{POINTS}data, test = torch.utils.data.random_split(points, [6, 2])\n{TRAINED}", "error"),
    "split by a seed a rank": (
        f"{SETUP}torch.manual_seed(dist.get_rank())\n{MODEL}{POINTS}"
        f"data, test = torch.utils.data.random_split(points, [6, 2])\n{TRAINED}",
        "error",
    ),
    "another library's seed": (
        f"import random\nrandom.seed(1)\n{SETUP}{MODEL}{POINTS}data, test = torch.utils.data.random_split(points, [6, 2])\n{TRAINED}",
        "error",
    ),
    "split in a helper": (
        f"def split(d):\n    return torch.utils.data.random_split(d, [6, 2])\n{SETUP}{MODEL}{POINTS}data = split(points)[0]\n{TRAINED}",
        "error",
    ),
    "permutation": (
        f"{SETUP}{MODEL}{POINTS}order = torch.randperm(8)\ndata = torch.utils.data.Subset(points, order[:6].tolist())\n{TRAINED}",
        "error",
    ),
    "numpy": (
        f"import numpy as np\n{SETUP}{MODEL}{POINTS}order = np.arange(8)\nnp.random.shuffle(order)\n"
        f"data = torch.utils.data.Subset(points, order)\n{TRAINED}",
        "error",
    ),
    "shuffled in the data set": (
        "import random\n"
        + LISTED.replace("= {}", "= list(range(8))\n        random.shuffle(self.files)")
        + f"{SETUP}{MODEL}data = Set('x')\n{TRAINED}",
        "error",
    ),
    "listing": (LISTING.format(LISTED.replace("{}", "glob.glob(root + '/*')")), "warning"),
    "filtered listing": (LISTING.format(LISTED.replace("{}", "[f for f in os.listdir(root) if f[0] != '.']")), "warning"),
    "path": (
        "from pathlib import Path\n" + LISTING.format(LISTED.replace("{}", "list(Path(root).rglob('*.pt'))")),
        "warning",
    ),
    "set of texts": (LISTING.format(LISTED.replace("{}", "list({str(i) for i in range(8)})")), "warning"),
}
THE_SAME = {
    "generator": DIFFERENT["split"][0].replace("[6, 2])", "[6, 2], generator=torch.Generator().manual_seed(0))"),
    "seed": f"torch.manual_seed(3)\n{DIFFERENT['split'][0]}",
    "unknown seed": f"import library\nlibrary.seed_all(3)\n{DIFFERENT['split'][0]}",
    "numpy's seed": "import numpy as np\nnp.random.seed(1)\n" + DIFFERENT["numpy"][0],
    "sorted": LISTING.format(LISTED.replace("{}", "sorted(glob.glob(root + '/*'))")),
    "sorted later": LISTING.format(LISTED.replace("{}", "glob.glob(root + '/*')\n        self.files.sort()")),
    "no sampler": DIFFERENT["listing"][0].replace("sampler=DistributedSampler(data)", "shuffle=True"),
    "divided by rank": DIFFERENT["listing"][0]
    .replace("sampler=DistributedSampler(data)", "shuffle=True")
    .replace("glob.glob(root + '/*')", "glob.glob(root + '/*')[dist.get_rank()::2]"),
    "one process": DIFFERENT["split"][0].replace("DDP(torch.nn.Linear(4, 1))", "torch.nn.Linear(4, 1)"),
    "before the ranks": f"def run(rank, data):\n    {SETUP}    {MODEL}"
    + "".join(f"    {line}\n" for line in TRAINED.splitlines())
    + f"{POINTS}data, test = torch.utils.data.random_split(points, [6, 2])\ntorch.multiprocessing.spawn(run, args=(data,), nprocs=2)\n",
    "evaluation files": LISTING.format(LISTED).replace("{}", "[]") + "print(os.listdir('x'))\n",
    "lightning": f"import lightning\n{DIFFERENT['split'][0]}",
}


@pytest.mark.parametrize("style", DIFFERENT)
def test_data_set_differs_by_rank(style: str, tmp_path: Path) -> None:
    text, severity = DIFFERENT[style]
    (finding,) = findings("DDP306", audited(tmp_path, HEAD + text))
    assert finding.severity == severity and "sampler" in {r.role for r in finding.related}


@pytest.mark.parametrize("style", THE_SAME)
def test_one_data_set_for_all_ranks_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP306", audited(tmp_path, HEAD + THE_SAME[style])) == []


# ---- data divided twice

WHOLE = "data = TensorDataset(torch.ones(8, 4))\n"
ACCELERATE = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
PREPARED = "model, loader = accelerator.prepare(torch.nn.Linear(4, 1), loader)\n"
CUT = "data = torch.utils.data.Subset(data, range(dist.get_rank(), 8, dist.get_world_size()))\n"
STRIDE = "files = ['a', 'b', 'c', 'd'][dist.get_rank() :: dist.get_world_size()]\n"
FILES = (
    "class Set(Dataset):\n    def __init__(self, files):\n        self.files = files\n    def __len__(self):\n"
    "        return len(self.files)\n    def __getitem__(self, i):\n        return torch.ones(4)\n"
)
TRAINER = "import lightning as L\nloader = DataLoader(data)\ntrainer = L.Trainer({})\ntrainer.fit(None, loader)\n"

TWICE = {
    "subset and sampler": f"{SETUP}{MODEL}{WHOLE}{CUT}{TRAINED}",
    "files and sampler": f"{FILES}{SETUP}{MODEL}{STRIDE}data = Set(files)\n{TRAINED}",
    "shard()": f"import datasets\n{SETUP}{MODEL}data = datasets.load_dataset('x').shard(2, index=dist.get_rank())\n{TRAINED}",
    "data set strides": FILES.replace("files):", "files, rank):\n        self.rank = rank").replace(
        "= files", "= files[self.rank :: 2]"
    )
    + f"{SETUP}{MODEL}data = Set([1, 2, 3, 4], dist.get_rank())\n{TRAINED}",
    "world size named": f"{SETUP}{MODEL}{WHOLE}{CUT}"
    + TRAINED.replace("(data))", "(data, num_replicas=dist.get_world_size(), rank=dist.get_rank()))"),
    "skipped batches": f"{SETUP}{MODEL}{WHOLE}{TRAINED.replace('for x in loader:', 'for i, x in enumerate(loader):')}".replace(
        "    model(x[0])", "    if i % dist.get_world_size() != dist.get_rank():\n        continue\n    model(x[0])"
    ),
    "accelerate": f"{ACCELERATE}{WHOLE}loader = DataLoader(data, sampler=DistributedSampler(data))\n{PREPARED}",
    "accelerate, part": f"{ACCELERATE}{WHOLE}{CUT}loader = DataLoader(data)\n{PREPARED}",
    "accelerate, loader alone": f"{ACCELERATE}{WHOLE}loader = DataLoader(data, sampler=DistributedSampler(data))\n"
    "loader = accelerator.prepare_data_loader(loader)\n",
    "lightning, part": f"{WHOLE}{CUT}{TRAINER.format('')}",
    "fabric, part": f"from lightning.fabric import Fabric\nfabric = Fabric()\n{WHOLE}{CUT}loader = fabric.setup_dataloaders(DataLoader(data))\n",
}
ONCE = {
    "sampler": f"{SETUP}{MODEL}{WHOLE}{TRAINED}",
    "subset": f"{SETUP}{MODEL}{WHOLE}{CUT}{TRAINED.replace('sampler=DistributedSampler(data)', 'shuffle=True')}",
    "within the node": f"{SETUP}{MODEL}{WHOLE}data = torch.utils.data.Subset(data, range(int(os.environ['GROUP_RANK']), 8, 2))\n"
    + TRAINED.replace("(data))", "(data, num_replicas=int(os.environ['LOCAL_WORLD_SIZE']), rank=int(os.environ['LOCAL_RANK'])))"),
    "rank for logging": FILES.replace("files):", "files, rank):\n        self.rank = rank")
    + f"{SETUP}{MODEL}data = Set([1, 2, 3, 4], dist.get_rank())\n{TRAINED}",
    "skipped by count": f"{SETUP}{MODEL}{WHOLE}{TRAINED.replace('for x in loader:', 'for i, x in enumerate(loader):')}".replace(
        "    model(x[0])", "    if i % 2 == 0:\n        continue\n    model(x[0])"
    ),
    "accelerate": f"{ACCELERATE}{WHOLE}loader = DataLoader(data, shuffle=True)\n{PREPARED}",
    "accelerate, not given": f"{ACCELERATE}{WHOLE}loader = DataLoader(data, sampler=DistributedSampler(data))\n"
    "model = accelerator.prepare(torch.nn.Linear(4, 1))\n",
    "lightning, sampler": f"{WHOLE}{TRAINER.format('')}".replace(
        "DataLoader(data)", "DataLoader(data, sampler=DistributedSampler(data))"
    ),
    "lightning, switched off": f"{WHOLE}{CUT}{TRAINER.format('use_distributed_sampler=False')}",
    "fabric, sampler": "from lightning.fabric import Fabric\nfabric = Fabric()\n"
    f"{WHOLE}loader = fabric.setup_dataloaders(DataLoader(data, sampler=DistributedSampler(data)))\n",
    "fabric, switched off": "from lightning.fabric import Fabric\nfabric = Fabric()\n"
    f"{WHOLE}{CUT}loader = fabric.setup_dataloaders(DataLoader(data), use_distributed_sampler=False)\n",
}


@pytest.mark.parametrize("style", TWICE)
def test_data_divided_twice(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP305", audited(tmp_path, HEAD + TWICE[style]))
    assert finding.severity == "error"


@pytest.mark.parametrize("style", ONCE)
def test_data_divided_once_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP305", audited(tmp_path, HEAD + ONCE[style])) == []


# ---- samplers of a wrong world

SAMPLING = f"{SETUP}{MODEL}{WHOLE}loader = DataLoader(data, sampler=DistributedSampler(data, {{}}))\n{LOOP}"
LOCAL = "rank=int(os.environ['LOCAL_RANK'])"
WRONG_WORLDS = {
    "devices of a node": SAMPLING.format(
        "num_replicas=torch.cuda.device_count(), rank=dist.get_rank() % torch.cuda.device_count()"
    ),
    "local rank": SAMPLING.format(f"num_replicas=dist.get_world_size(), {LOCAL}"),
    "local rank alone": SAMPLING.format(LOCAL),
    "local world": SAMPLING.format(f"num_replicas=int(os.environ['LOCAL_WORLD_SIZE']), {LOCAL}"),
    "positions": SAMPLING.format("dist.get_world_size(), int(os.environ['LOCAL_RANK'])"),
    "replicas alone": SAMPLING.format("num_replicas=torch.cuda.device_count()"),
    "rank 0": SAMPLING.format("rank=0"),
    "one replica": SAMPLING.format("num_replicas=1, rank=0"),
    "seed": SAMPLING.format("seed=dist.get_rank()"),
    "seed by the clock": "import time\n" + SAMPLING.format("seed=int(time.time())"),
    "helper": "def sampler(d, n, r):\n    return DistributedSampler(d, num_replicas=n, rank=r)\n"
    f"{SETUP}{MODEL}{WHOLE}loader = DataLoader(data, sampler=sampler(data, dist.get_world_size(), int(os.environ['LOCAL_RANK'])))\n{LOOP}",
}
RIGHT_WORLDS = {
    "defaults": SAMPLING.format(""),
    "named": SAMPLING.format("num_replicas=dist.get_world_size(), rank=dist.get_rank(), seed=3"),
    "environment": SAMPLING.format("num_replicas=int(os.environ['WORLD_SIZE']), rank=int(os.environ['RANK'])"),
    "group": "g = dist.new_group([0, 1])\n" + SAMPLING.format("num_replicas=dist.get_world_size(g), rank=dist.get_rank(g)"),
    "unknown": "import library\n" + SAMPLING.format("num_replicas=library.count(), rank=library.number()"),
    "one node": "os.environ['MASTER_ADDR'] = 'localhost'\n" + SAMPLING.format(f"num_replicas=torch.cuda.device_count(), {LOCAL}"),
    "options": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=1)\na = p.parse_args()\n"
    + SAMPLING.format("num_replicas=a.n, rank=dist.get_rank()"),
    "product of options": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=1)\n"
    "p.add_argument('--m', type=int, default=1)\na = p.parse_args()\nw = a.n * a.m\n"
    + SAMPLING.format("num_replicas=w, rank=dist.get_rank()"),
    "divided before": SAMPLING.replace("sampler=", "batch_size=2, sampler=")
    .format(f"num_replicas=int(os.environ['LOCAL_WORLD_SIZE']), {LOCAL}")
    .replace("loader =", "data = torch.utils.data.Subset(data, range(int(os.environ['GROUP_RANK']), 8, 2))\nloader ="),
    "no shuffle": SAMPLING.format("seed=dist.get_rank(), shuffle=False"),
    "a seeded seed": "import random\nrandom.seed(1)\n" + SAMPLING.format("seed=random.randint(0, 9)"),
    "cells": SAMPLING.format("seed=1 + 2"),
}


@pytest.mark.parametrize("style", WRONG_WORLDS)
def test_sampler_of_a_wrong_world(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP303", audited(tmp_path, HEAD + WRONG_WORLDS[style]))
    assert finding.severity == "error"


@pytest.mark.parametrize("style", RIGHT_WORLDS)
def test_sampler_of_the_whole_world_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP303", audited(tmp_path, HEAD + RIGHT_WORLDS[style])) == []


def test_local_numbers_are_right_on_one_node(tmp_path: Path) -> None:
    launch = read_command("torchrun --nnodes 1 --nproc-per-node 2 train.py")
    (finding,) = findings("DDP303", audited(tmp_path, HEAD + WRONG_WORLDS["local world"], launch=launch))
    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("begun", "verdict"), [([(0, 2), (1, 2)], "not-observed"), ([(0, 1), (0, 1)], "confirmed"), ([(0, 2)], "not-exercised")]
)
def test_samplers_in_a_run(begun: list[tuple[int, int]], verdict: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP303", audited(tmp_path, HEAD + WRONG_WORLDS["local world"]))
    ranks = [[Event(SAMPLER, detail={"action": "iter", "rank": rank, "replicas": replicas})] for rank, replicas in begun]
    assert rules()["DDP303"].verify(finding, run_of(*ranks)) == verdict


# ---- streams

STREAM = (
    "class Stream(torch.utils.data.IterableDataset):\n    def __init__(self, n):\n        self.n = n\n    def __iter__(self):\n"
    "        for i in range(self.n):\n            yield torch.full((4,), float(i))\n"
)
BY_WORKER = STREAM.replace(
    "        for i in range(self.n)",
    "        info = torch.utils.data.get_worker_info()\n        for i in range(info.id, self.n, info.num_workers)",
)
SEEDED = BY_WORKER.replace(
    "            yield torch.full((4,), float(i))\n",
    "            g = torch.Generator().manual_seed(i)\n            yield torch.randn(4, generator=g)\n",
)
FED = f"{SETUP}{MODEL}loader = DataLoader({{}})\n{LOOP}"
HUGGING = f"from datasets import load_dataset\n{SETUP}{MODEL}data = load_dataset('x', streaming=True)['train']{{}}\nloader = DataLoader(data)\n{LOOP}"

WHOLE_STREAMS = {
    "class": STREAM + FED.format("Stream(8)"),
    "by worker": BY_WORKER + FED.format("Stream(8), num_workers=2"),
    "each item has its seed": SEEDED + FED.format("Stream(8), num_workers=2"),
    "each item has numpy's": "import numpy as np\n"
    + STREAM.replace("yield torch.full((4,), float(i))", "rng = np.random.default_rng(7 + i)\n            yield rng.random(4)")
    + FED.format("Stream(8)"),
    "epochs in a function": f"{STREAM}def train(m, batches):\n    for epoch in range(2):\n        for x in batches:\n"
    f"            m(x).sum().backward()\n{SETUP}{MODEL}train(model, DataLoader(Stream(8)))\n",
    "streaming": HUGGING.format(""),
    "mapped": HUGGING.format(".map(len)"),
}
SHARED_STREAMS = {
    "rank asked": STREAM.replace("range(self.n)", "range(dist.get_rank(), self.n, dist.get_world_size())")
    + FED.format("Stream(8)"),
    "rank given": STREAM.replace("self, n)", "self, n, part)") + FED.format("Stream(8, dist.get_rank())"),
    "files of a rank": "files = ['a', 'b'][dist.get_rank() :: 2]\n" + STREAM + FED.format("Stream(files)"),
    "random": STREAM.replace("torch.full((4,), float(i))", "torch.rand(4)") + FED.format("Stream(8)"),
    "the seed of a worker": SEEDED.replace("seed(i)", "seed(info.seed)") + FED.format("Stream(8), num_workers=2"),
    "a seed of its own": SEEDED.replace("seed(i)", "seed(self.base + i)").replace(
        "self.n = n", "self.n, self.base = n, os.getpid()"
    )
    + FED.format("Stream(8), num_workers=2"),
    "no seed": SEEDED.replace(".manual_seed(i)", "") + FED.format("Stream(8), num_workers=2"),
    "one draw more": SEEDED.replace("generator=g)", "generator=g) + torch.rand(4)") + FED.format("Stream(8), num_workers=2"),
    "split": "from datasets.distributed import split_dataset_by_node\n"
    + HUGGING.format("\ndata = split_dataset_by_node(data, dist.get_rank(), 2)"),
    "shard()": HUGGING.format(".shard(2, dist.get_rank())"),
    "not streaming": HUGGING.replace("streaming=True", "streaming=False").format(""),
    "skipped": STREAM + f"{SETUP}{MODEL}loader = DataLoader(Stream(8))\nfor i, x in enumerate(loader):\n"
    "    if i % dist.get_world_size() != dist.get_rank():\n        continue\n    model(x).sum().backward()\n",
    "cut batches": STREAM + FED.format("Stream(8)").replace("model(x)", "model(x[dist.get_rank() :: 2])"),
    "evaluated": STREAM + f"{SETUP}{MODEL}with torch.no_grad():\n    for x in DataLoader(Stream(8)):\n        model(x)\n",
    "a library's base": f"import library\n{STREAM.replace('torch.utils.data.IterableDataset', 'library.ShareIterableDataset')}"
    + FED.format("Stream(8)"),
    "accelerate": "import accelerate\n" + STREAM + FED.format("Stream(8)"),
    "one process": (STREAM + FED.format("Stream(8)")).replace("DDP(torch.nn.Linear(4, 1))", "torch.nn.Linear(4, 1)"),
}


@pytest.mark.parametrize("style", WHOLE_STREAMS)
def test_stream_that_is_whole_on_each_rank(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP304", audited(tmp_path, HEAD + WHOLE_STREAMS[style]))
    assert finding.severity == "warning" and {"loop", "forward"} <= {r.role for r in finding.related}
    assert ("by worker" in finding.message) == (style in ("by worker", "each item has its seed"))


@pytest.mark.parametrize("style", SHARED_STREAMS)
def test_stream_with_a_part_for_each_rank_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP304", audited(tmp_path, HEAD + SHARED_STREAMS[style])) == []
