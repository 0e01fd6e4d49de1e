"""Rules on data, devices, process groups and checkpoints: examples, other styles of a hazard, look-alikes that must stay quiet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from found import HEAD, audited, findings, rules

from ddp_audit.launch import read_command

CODES = ["DDP301", "DDP302", "DDP309", "DDP601", "DDP604", "DDP605", "DDP704"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("code", CODES)
def test_examples(code: str, tmp_path: Path) -> None:
    rule = rules()[code]
    bad = findings(code, audited(tmp_path, rule.bad))
    places = 2 if code == "DDP605" else 1  # the option's own line is one more
    assert [(f.code, f.severity) for f in bad] == [(code, rule.level)] * places
    assert bad[0].message.endswith(".") and "\n" not in bad[0].message
    assert findings(code, audited(tmp_path, rule.good), "possible") == []


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("other", CODES)
def test_good_examples_are_clean(code: str, other: str, tmp_path: Path) -> None:
    assert findings(other, audited(tmp_path, rules()[code].good)) == []


# ---- data

SETUP = "dist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(4, 1))\ndata = TensorDataset(torch.ones(8, 4))\n"
STEP = "        loss = model(x[0]).sum()\n        loss.backward()\n"
LOOP = f"for epoch in range(3):\n    for x in loader:\n{STEP}"
SAMPLED = "sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"

NOT_SHARDED = {
    "weights drawn with one seed": f"from torch.utils.data import WeightedRandomSampler\ntorch.manual_seed(7)\n"
    f"{SETUP}loader = DataLoader(data, sampler=WeightedRandomSampler([1.0] * 8, 8))\n{LOOP}",
    "no sampler": f"{SETUP}loader = DataLoader(data, shuffle=True)\n{LOOP}",
    "random sampler": f"from torch.utils.data import RandomSampler\n"
    f"{SETUP}loader = DataLoader(data, sampler=RandomSampler(data))\n{LOOP}",
    "helpers": f"def load(d):\n    return DataLoader(d)\ndef step(m, x):\n    m(x[0]).sum().backward()\ndef train(m, batches):\n"
    f"    for i, x in enumerate(batches):\n        step(m, x)\n{SETUP}train(model, load(data))\n",
    "class": f"class T:\n    def __init__(self, m, d):\n"
    f"        self.m, self.batches = m, DataLoader(d, batch_size=2)\n    def fit(self):\n"
    f"        for x in self.batches:\n            loss = self.m(x[0]).mean()\n            loss.backward()\n"
    f"{SETUP}T(model, data).fit()\n",
    "next": f"{SETUP}batches = iter(DataLoader(data))\nfor i in range(4):\n    x = next(batches)\n"
    f"    model(x[0]).sum().backward()\n",
    "part of a split": f"{SETUP}train, test = torch.utils.data.random_split(data, [6, 2])\nloader = DataLoader(train)\n{LOOP}",
    "own data set": "class Set(Dataset):\n    def __len__(self):\n        return 8\n    def __getitem__(self, i):\n"
    f"        return (torch.full((4,), i),)\n{SETUP}loader = DataLoader(Set(), shuffle=True)\n{LOOP}",
}
SHARDED = {
    "weights drawn with seeds by rank": f"from torch.utils.data import WeightedRandomSampler\n"
    f"{SETUP}torch.manual_seed(7 + dist.get_rank())\nloader = DataLoader(data, sampler=WeightedRandomSampler([1.0] * 8, 8))\n{LOOP}",
    "sampler": f"{SETUP}{SAMPLED}{LOOP}",
    "conditional sampler": f"{SETUP}sampler = DistributedSampler(data) if dist.is_initialized() else None\n"
    f"loader = DataLoader(data, shuffle=sampler is None, sampler=sampler)\n{LOOP}",
    "batch sampler": f"from torch.utils.data import BatchSampler\n{SETUP}"
    f"loader = DataLoader(data, batch_sampler=BatchSampler(DistributedSampler(data), 2, True))\n{LOOP}",
    "strides": f"{SETUP}part = torch.utils.data.Subset(data, range(dist.get_rank(), 8, dist.get_world_size()))\n"
    f"loader = DataLoader(part, shuffle=True)\n{LOOP}",
    "shard()": f"{SETUP}loader = DataLoader(data.shard(num_shards=2, index=dist.get_rank()))\n{LOOP}",
    "data set with rank": "class Set(Dataset):\n    def __init__(self, part):\n        self.part = part\n"
    f"{SETUP}loader = DataLoader(Set(int(os.environ['RANK'])))\n{LOOP}",
    "data set asks": "class Set(Dataset):\n    def __getitem__(self, i):\n"
    "        return (torch.full((4,), i * 2 + dist.get_rank()),)\n"
    f"{SETUP}loader = DataLoader(Set())\n{LOOP}",
    "own sampler": "class Mine(torch.utils.data.Sampler):\n    def __init__(self, data, rank):\n        self.rank = rank\n"
    f"{SETUP}loader = DataLoader(data, sampler=Mine(data, dist.get_rank()))\n{LOOP}",
    "skipped by rank": f"{SETUP}loader = DataLoader(data)\nfor i, x in enumerate(loader):\n"
    "    if i % dist.get_world_size() != dist.get_rank():\n        continue\n    model(x[0]).sum().backward()\n",
    "cut batches": f"{SETUP}loader = DataLoader(data)\nfor x in loader:\n    mine = x[0][dist.get_rank()::2]\n"
    f"    model(mine).sum().backward()\n",
    "evaluation": f"{SETUP}loader = DataLoader(data)\nwith torch.no_grad():\n    for x in loader:\n        model(x[0])\n",
    "replacement": f"from torch.utils.data import RandomSampler\n{SETUP}"
    f"loader = DataLoader(data, sampler=RandomSampler(data, replacement=True))\n{LOOP}",
    "drawing data set": "class Set(Dataset):\n    def __len__(self):\n        return 8\n    def __getitem__(self, i):\n"
    f"        return (torch.rand(4),)\n{SETUP}loader = DataLoader(Set())\n{LOOP}",
    "iterable": "class Set(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        yield torch.ones(4)\n"
    f"{SETUP}loader = DataLoader(Set())\n{LOOP}",
    "unknown data": f"import library\n{SETUP}loader = DataLoader(library.data())\n{LOOP}",
    "accelerate": f"import accelerate\n{SETUP}loader = accelerate.Accelerator().prepare(DataLoader(data))\n{LOOP}",
    "one process": "model = torch.nn.Linear(4, 1)\ndata = TensorDataset(torch.ones(8, 4))\n"
    f"loader = DataLoader(data, shuffle=True)\n{LOOP}",
}


@pytest.mark.parametrize("style", NOT_SHARDED)
def test_data_not_sharded(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP301", audited(tmp_path, HEAD + NOT_SHARDED[style]))
    assert finding.severity == "error" and {"loop", "forward", "wrap"} <= {r.role for r in finding.related}


WEIGHTED = (
    "from torch.utils.data import RandomSampler, WeightedRandomSampler as Weighted\n"
    f"torch.manual_seed(3)\n{SETUP}loader = DataLoader(data, sampler=Weighted(torch.ones(8), 8))\n{LOOP}"
)
DRAWN_ALIKE = {
    "weighted": WEIGHTED,
    "replacement": WEIGHTED.replace("Weighted(torch.ones(8), 8)", "RandomSampler(data, True, 8)"),
    "option": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int, default=1)\na = p.parse_args()\n"
    + WEIGHTED.replace("manual_seed(3)", "manual_seed(a.seed)"),
}
DRAWN_APART = {
    "not seeded": WEIGHTED.replace("torch.manual_seed(3)\n", ""),
    "by rank": WEIGHTED.replace("manual_seed(3)", "manual_seed(3 + int(os.environ['RANK']))"),
    "by rank later": WEIGHTED.replace("for epoch", "torch.manual_seed(dist.get_rank())\nfor epoch"),
    "unknown seed": WEIGHTED.replace("manual_seed(3)", "manual_seed(own.seed())"),
    "only if asked": WEIGHTED.replace("torch.manual_seed(3)", "if own.fixed():\n    torch.manual_seed(3)"),
    "own generator": WEIGHTED.replace("ones(8), 8)", "ones(8), 8, True, own.generator(dist.get_rank()))"),
    "weights by rank": WEIGHTED.replace("torch.ones(8)", "torch.ones(8) * (torch.arange(8) % 2 == dist.get_rank())"),
    "one process": WEIGHTED.replace("DDP(torch.nn.Linear(4, 1))", "torch.nn.Linear(4, 1)"),
    "seeded afterwards": f"{WEIGHTED}torch.manual_seed(3)\n".replace("torch.manual_seed(3)\n", "", 1),
}


@pytest.mark.parametrize("style", DRAWN_ALIKE)
def test_draws_with_replacement_after_one_seed(style: str, tmp_path: Path) -> None:
    (finding,) = findings("DDP301", audited(tmp_path, HEAD + DRAWN_ALIKE[style]))
    assert "All ranks draw the same samples" in finding.message and {"loop", "seed", "forward"} <= {r.role for r in finding.related}


@pytest.mark.parametrize("style", DRAWN_APART)
def test_draws_with_replacement_apart(style: str, tmp_path: Path) -> None:
    assert findings("DDP301", audited(tmp_path, HEAD + DRAWN_APART[style]), "possible") == []


@pytest.mark.parametrize("style", SHARDED)
def test_sharded_data_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP301", audited(tmp_path, HEAD + SHARDED[style])) == []


def test_data_not_sharded_says_when_batches_are_equal(tmp_path: Path) -> None:
    text = f"{HEAD}{SETUP}torch.manual_seed(3)\nloader = DataLoader(data, shuffle=True)\n{LOOP}"
    assert "equal batches" in findings("DDP301", audited(tmp_path, text))[0].message
    text = text.replace("manual_seed(3)", "manual_seed(3 + dist.get_rank())")
    assert "equal batches" not in findings("DDP301", audited(tmp_path, text))[0].message


NO_EPOCH = {
    "never": f"{SETUP}{SAMPLED}{LOOP}",
    "outside": f"{SETUP}{SAMPLED}sampler.set_epoch(1)\n{LOOP}",
    "constant": f"{SETUP}{SAMPLED}" + LOOP.replace("    for x", "    sampler.set_epoch(0)\n    for x"),
    "late": f"{SETUP}{SAMPLED}{LOOP}    sampler.set_epoch(epoch)\n",
    "inside": f"{SETUP}{SAMPLED}" + LOOP.replace("        loss = ", "        sampler.set_epoch(epoch)\n        loss = "),
    "on the other one": f"{SETUP}{SAMPLED}other = DistributedSampler(data)\n"
    + LOOP.replace("    for x", "    other.set_epoch(epoch)\n    for x"),
    "helper": f"def epoch(m, batches):\n    for x in batches:\n        m(x[0]).sum().backward()\n{SETUP}{SAMPLED}"
    "for e in range(3):\n    epoch(model, loader)\n",
    "apex, other function": "from apex.parallel import DistributedDataParallel as Apex\ndef prepare(d):\n"
    "    s = DistributedSampler(d)\n"
    f"    return DataLoader(d, sampler=s)\n{SETUP}model = Apex(torch.nn.Linear(4, 1))\nloader = prepare(data)\n{LOOP}",
    "subclass": f"class Mine(DistributedSampler):\n    pass\n{SETUP}{SAMPLED.replace('DistributedSampler(', 'Mine(')}{LOOP}",
    "explicit shuffle": f"{SETUP}{SAMPLED.replace('(data)', '(data, shuffle=True)')}{LOOP}",
    "while": f"{SETUP}{SAMPLED}epoch = 0\nwhile epoch < 3:\n    for x in loader:\n{STEP}    epoch += 1\n",
}
ITERATOR = (
    f"{SETUP}sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler, num_workers=2)\n"
    "for epoch in range(3):\n    batches = iter(loader)\n    sampler.set_epoch(epoch)\n    for x in batches:\n" + STEP
)
NO_EPOCH["after the workers began"] = ITERATOR
NO_EPOCH["after the workers began, on the loader's"] = ITERATOR.replace("sampler.set_", "loader.sampler.set_")
EPOCH_KNOWN = {
    "no workers": ITERATOR.replace(", num_workers=2", ""),
    "workers not known": ITERATOR.replace("=2", "=own.workers()"),
    "another iterator": ITERATOR.replace("in batches", "in loader"),
    "before the workers": ITERATOR.replace("    batches = iter(loader)\n", "").replace(
        "    for x", "    batches = iter(loader)\n    for x"
    ),
    "on the sampler": f"{SETUP}{SAMPLED}" + LOOP.replace("    for x", "    sampler.set_epoch(epoch)\n    for x"),
    "on the loader's": f"{SETUP}{SAMPLED}" + LOOP.replace("    for x", "    loader.sampler.set_epoch(epoch)\n    for x"),
    "guarded": f"{SETUP}{SAMPLED}"
    + LOOP.replace("    for x", "    if hasattr(loader.sampler, 'set_epoch'):\n        loader.sampler.set_epoch(epoch)\n    for x"),
    "and": f"{SETUP}{SAMPLED}" + LOOP.replace("    for x", "    sampler and sampler.set_epoch(epoch)\n    for x"),
    "batch sampler": f"from torch.utils.data import BatchSampler\n{SETUP}sampler = DistributedSampler(data)\n"
    "loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 2, True))\n"
    + LOOP.replace("    for x", "    loader.batch_sampler.sampler.set_epoch(epoch)\n    for x"),
    "in the callee": f"def run(m, batches, s, e):\n    s.set_epoch(e)\n    for x in batches:\n        m(x[0]).sum().backward()\n"
    f"{SETUP}{SAMPLED}for e in range(3):\n    run(model, loader, sampler, e)\n",
    "method": "class Data:\n    def __init__(self, d):\n        self.sampler = DistributedSampler(d)\n"
    "        self.loader = DataLoader(d, sampler=self.sampler)\n    def set_epoch(self, e):\n        self.sampler.set_epoch(e)\n"
    f"{SETUP}d = Data(data)\nfor epoch in range(3):\n    d.set_epoch(epoch)\n    for x in d.loader:\n{STEP}",
    "next epoch at the end": f"{SETUP}{SAMPLED}{LOOP}    sampler.set_epoch(epoch + 1)\n",
    "no shuffle": f"{SETUP}{SAMPLED.replace('(data)', '(data, shuffle=False)')}{LOOP}",
    "one pass": f"{SETUP}{SAMPLED}for x in loader:\n    model(x[0]).sum().backward()\n",
    "one epoch": f"{SETUP}{SAMPLED}{LOOP.replace('range(3)', 'range(1)')}",
    "validation": f"{SETUP}{SAMPLED}for epoch in range(3):\n    with torch.no_grad():\n        for x in loader:\n"
    f"            model(x[0])\n",
    "own order": "class Mine(DistributedSampler):\n    def __iter__(self):\n        return iter([1])\n"
    f"{SETUP}{SAMPLED.replace('DistributedSampler(', 'Mine(')}{LOOP}",
    "made anew": f"{SETUP}for epoch in range(3):\n    sampler = DistributedSampler(data, seed=epoch)\n"
    f"    loader = DataLoader(data, sampler=sampler)\n    for x in loader:\n{STEP}",
    "lightning": f"import lightning\n{SETUP}{SAMPLED}{LOOP}",
    "unknown object": f"import library\n{SETUP}{SAMPLED}loader = library.wrap(loader)\n"
    + LOOP.replace("    for x", "    library.current().set_epoch(epoch)\n    for x"),
}


@pytest.mark.parametrize("style", NO_EPOCH)
def test_missing_set_epoch(style: str, tmp_path: Path) -> None:
    context = audited(tmp_path, HEAD + NO_EPOCH[style])
    (finding,) = findings("DDP302", context)
    assert finding.severity == "warning"
    assert "Sampler(" in context.program.line("train.py", finding.span.line) or "Mine(" in context.program.line(
        "train.py", finding.span.line
    )


@pytest.mark.parametrize("style", EPOCH_KNOWN)
def test_a_sampler_that_learns_the_epoch_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP302", audited(tmp_path, HEAD + EPOCH_KNOWN[style])) == []


def test_set_epoch_in_another_file(tmp_path: Path) -> None:
    files = {
        "loops.py": "def run(m, batches, e):\n    batches.sampler.set_epoch(e)\n    for x in batches:\n"
        "        m(x[0]).sum().backward()\n"
    }
    text = f"from loops import run\n{HEAD}{SETUP}{SAMPLED}for e in range(3):\n    run(model, loader, e)\n"
    assert findings("DDP302", audited(tmp_path, text, files)) == []
    files = {"loops.py": files["loops.py"].replace("    batches.sampler.set_epoch(e)\n", "")}
    assert len(findings("DDP302", audited(tmp_path, text, files))) == 1


# ---- devices

RANKS = "dist.init_process_group('nccl')\nrank = dist.get_rank()\n"
AS_DEVICE = {
    "set_device": f"{RANKS}torch.cuda.set_device(rank)\n",
    "before init": "torch.cuda.set_device(int(os.environ['RANK']))\ndist.init_process_group('nccl')\n",
    "device_ids": f"{RANKS}DDP(torch.nn.Linear(1, 1), device_ids=[rank])\n",
    "to": f"{RANKS}torch.nn.Linear(1, 1).to(rank)\n",
    "string": f"{RANKS}torch.nn.Linear(1, 1).to(f'cuda:{{rank}}')\n",
    "format": f"{RANKS}torch.nn.Linear(1, 1).to('cuda:{{}}'.format(rank))\n",
    "device": f"{RANKS}device = torch.device('cuda', rank)\n",
    "cuda": f"{RANKS}torch.nn.Linear(1, 1).cuda(rank)\n",
    "helper": f"def place(m, where):\n    return m.to(where)\n{RANKS}place(torch.nn.Linear(1, 1), rank)\n",
    "attribute": "class Job:\n    def __init__(self):\n        self.rank = int(os.environ['RANK'])\n    def go(self):\n"
    "        torch.cuda.set_device(self.rank)\ndist.init_process_group('nccl')\nJob().go()\n",
    "slurm": "rank = int(os.environ['SLURM_PROCID'])\n"
    "dist.init_process_group('nccl', rank=rank, world_size=int(os.environ['SLURM_NTASKS']))\n"
    "torch.cuda.set_device(rank)\n",
    "spawned, many nodes": "import torch.multiprocessing as mp\ndef work(gpu):\n"
    "    rank = int(os.environ['NODE_RANK']) * 2 + gpu\n"
    "    dist.init_process_group('nccl', rank=rank, world_size=4)\n    torch.cuda.set_device(rank)\nmp.spawn(work, nprocs=2)\n",
}
AS_DEVICE_QUIET = {
    "local rank": "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n",
    "modulo": f"{RANKS}torch.cuda.set_device(rank % torch.cuda.device_count())\n",
    "renamed local rank": "rank = int(os.environ['LOCAL_RANK'])\ndist.init_process_group('nccl')\ntorch.cuda.set_device(rank)\n",
    "argument": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\n"
    "args = p.parse_args()\n"
    "dist.init_process_group('nccl')\ntorch.cuda.set_device(args.local_rank)\n",
    "spawned": "import torch.multiprocessing as mp\ndef work(rank, size):\n    os.environ['MASTER_ADDR'] = 'localhost'\n"
    "    dist.init_process_group('nccl', rank=rank, world_size=size)\n    torch.cuda.set_device(rank)\n"
    "    DDP(torch.nn.Linear(1, 1).to(rank), device_ids=[rank])\nmp.spawn(work, args=(2,), nprocs=2)\n",
    "spawned, own rank asked": "import torch.multiprocessing as mp\ndef work(i, size):\n"
    "    dist.init_process_group('nccl', rank=i, world_size=size)\n    torch.cuda.set_device(dist.get_rank())\n"
    "n = torch.cuda.device_count()\nmp.spawn(work, args=(n,), nprocs=n)\n",
    "local address": "dist.init_process_group('nccl', init_method='tcp://127.0.0.1:29500')\n"
    "torch.cuda.set_device(dist.get_rank())\n",
    "own view": f"os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n{RANKS}torch.cuda.set_device(rank)\n",
    "unknown": "import library\ndist.init_process_group('nccl')\ntorch.cuda.set_device(library.device_of(dist.get_rank()))\n",
    "helper of its node": "GROUP = None\ndef get_local_rank():\n    if GROUP is None:\n        return dist.get_rank()\n"
    "    return dist.get_rank(group=GROUP)\ndist.init_process_group('nccl')\ntorch.cuda.set_device(get_local_rank())\n",
    "not a device": f"{RANKS}print(rank)\nx = torch.ones(1).to('cpu')\n",
    "uncalled": "def work(rank):\n    torch.cuda.set_device(rank)\n",
}


@pytest.mark.parametrize("style", AS_DEVICE)
def test_rank_as_device(style: str, tmp_path: Path) -> None:
    found = findings("DDP601", audited(tmp_path, HEAD + AS_DEVICE[style]))
    assert {f.severity for f in found} == {"error"} and len(found) == 1
    assert "rank 2 asks for device 2" in found[0].message


@pytest.mark.parametrize("style", AS_DEVICE_QUIET)
def test_devices_that_exist_are_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP601", audited(tmp_path, HEAD + AS_DEVICE_QUIET[style])) == []


def test_one_finding_a_function_and_way(tmp_path: Path) -> None:
    text = f"{HEAD}{RANKS}a = torch.ones(1).to(rank)\nb = torch.ones(1).to(rank)\nDDP(torch.nn.Linear(1, 1), device_ids=[rank])\n"
    found = findings("DDP601", audited(tmp_path, text))
    assert [len([r for r in f.related if r.role == "device"]) for f in found] == [1, 0]


def test_rank_as_device_on_a_launch_of_one_node(tmp_path: Path) -> None:
    launch = read_command("torchrun --nnodes=1 --nproc-per-node=2 train.py")
    (finding,) = findings("DDP601", audited(tmp_path, HEAD + AS_DEVICE["to"], launch=launch))
    assert finding.severity == "info"
    (finding,) = findings("DDP601", audited(tmp_path, HEAD + AS_DEVICE["to"], launch=replace(launch, nnodes=2, world_size=4)))
    assert finding.severity == "error"


def test_local_rank_read_and_not_used(tmp_path: Path) -> None:
    text = f"{HEAD}local_rank = int(os.environ['LOCAL_RANK'])\n{RANKS}torch.cuda.set_device(rank)\n"
    found = findings("DDP601", audited(tmp_path, text))
    assert [(f.severity, "never used" in f.message) for f in found] == [("error", False), ("warning", True)]
    assert len(findings("DDP601", audited(tmp_path, text + "print(local_rank)\n"))) == 1


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        ("int(os.environ['LOCAL_RANK'])", ["info"]),
        ("42 + int(os.environ['LOCAL_RANK'])", ["info"]),
        ("42 + dist.get_rank()", []),
        ("42", []),
        ("int(os.environ['LOCAL_RANK']) + 8 * int(os.environ['GROUP_RANK'])", []),
    ],
)
def test_seed_of_the_local_rank(seed: str, expected: list[str], tmp_path: Path) -> None:
    text = f"{HEAD}import random\ndist.init_process_group('gloo')\ntorch.manual_seed({seed})\nrandom.seed({seed})\n"
    assert [f.severity for f in findings("DDP601", audited(tmp_path, text))] == expected


OPTIONS = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--device', default='cuda')\nargs = p.parse_args()\n"
FORCED = {
    "argument": f"{OPTIONS}dist.init_process_group('nccl')\nargs.device = f\"cuda:{{os.environ['LOCAL_RANK']}}\"\n",
    "variable": f"{OPTIONS}device = args.device\ndist.init_process_group('nccl')\n"
    "device = torch.device('cuda', int(os.environ['LOCAL_RANK']))\n",
    "configurator": "device = 'cpu'\nexec(open('configurator.py').read())\ndist.init_process_group('gloo')\n"
    "device = 'cuda:' + os.environ['LOCAL_RANK']\n",
    "under the flag": f"{OPTIONS}distributed = 'RANK' in os.environ\nif distributed:\n    dist.init_process_group('nccl')\n"
    "    args.device = f\"cuda:{os.environ['LOCAL_RANK']}\"\n",
}
NOT_FORCED = {
    "asked": f"{OPTIONS}dist.init_process_group('nccl')\nif args.device == 'cuda':\n"
    f"    args.device = f\"cuda:{{os.environ['LOCAL_RANK']}}\"\n",
    "available": f"{OPTIONS}dist.init_process_group('nccl')\nif torch.cuda.is_available():\n"
    "    args.device = f\"cuda:{os.environ['LOCAL_RANK']}\"\n",
    "else of cpu": f"{OPTIONS}dist.init_process_group('gloo')\nif args.device == 'cpu':\n    pass\nelse:\n"
    "    args.device = f\"cuda:{os.environ['LOCAL_RANK']}\"\n",
    "no option": "device = 'cuda'\ndist.init_process_group('nccl')\ndevice = f\"cuda:{os.environ['LOCAL_RANK']}\"\n",
    "other name": f"{OPTIONS}dist.init_process_group('nccl')\nmine = f\"cuda:{{os.environ['LOCAL_RANK']}}\"\n",
    "of the option": f"{OPTIONS}dist.init_process_group('nccl')\nargs.device = f\"{{args.device}}:{{os.environ['LOCAL_RANK']}}\"\n",
}


@pytest.mark.parametrize("style", FORCED)
def test_device_forced(style: str, tmp_path: Path) -> None:
    found = findings("DDP605", audited(tmp_path, HEAD + FORCED[style]))
    assert {f.severity for f in found} == {"info"} and "becomes the CUDA device" in found[0].message
    assert len(found) == 2 and "The option `device` has no effect" in found[1].message


def test_device_and_backend_options_are_named_at_their_lines(tmp_path: Path) -> None:
    text = "device = 'cpu'\nbackend = 'gloo'\nexec(open('configurator.py').read())\ndist.init_process_group(backend)\n"
    text += "device = 'cuda:' + os.environ['LOCAL_RANK']\nother = device\n"
    context = audited(tmp_path, HEAD + text)
    found = {context.program.line("train.py", f.span.line): f.message for f in findings("DDP605", context)}
    assert list(found) == ["device = 'cuda:' + os.environ['LOCAL_RANK']", "device = 'cpu'", "backend = 'gloo'"]
    assert "has no effect" in found["device = 'cpu'"] and "does not make a run on CPUs" in found["backend = 'gloo'"]


BACKEND = OPTIONS.replace("device', default='cuda'", "backend', default='nccl'")
PLAIN = (
    f"device = 'cpu'\n{BACKEND}if 'RANK' in os.environ:\n    dist.init_process_group(args.backend)\n"
    "    device = f\"cuda:{os.environ['LOCAL_RANK']}\"\n"
)


def test_cpu_that_is_overwritten_beside_a_backend_option(tmp_path: Path) -> None:
    found = findings("DDP605", audited(tmp_path, HEAD + PLAIN))
    assert ["could be gloo" in f.message for f in found] == [True, False] and "does not make a run on CPUs" in found[1].message
    for quiet in (
        PLAIN.replace("args.backend", "'nccl'"),
        PLAIN.replace("device = 'cpu'", "device = own.device()"),
        PLAIN.replace("if 'RANK'", "if torch.cuda.is_available() and 'RANK'"),
        PLAIN.replace("    device =", "    if args.backend == 'nccl':\n        device ="),
    ):
        assert findings("DDP605", audited(tmp_path, HEAD + quiet)) == []


@pytest.mark.parametrize("style", NOT_FORCED)
def test_device_of_choice_is_left_alone(style: str, tmp_path: Path) -> None:
    assert findings("DDP605", audited(tmp_path, HEAD + NOT_FORCED[style])) == []


# ---- process groups and checkpoints

INIT = "dist.init_process_group('nccl')\n"
TRAINED_ONCE = "DDP(torch.nn.Linear(1, 1))(torch.ones(1)).sum().backward()"
OPEN = {
    "never": (f"{INIT}dist.barrier()\n", "init_process_group"),
    "in another file": ("from setup import start\nstart()\n", "start()"),
    "normal path": (f"{INIT}{TRAINED_ONCE}\ndist.destroy_process_group()\n", "destroy_process_group()"),
    "helper": (
        f"def end():\n    dist.destroy_process_group()\ndef main():\n    {INIT}    {TRAINED_ONCE}\n    end()\nmain()\n",
        "    end()",
    ),
    "under a flag": (
        f"{INIT}{TRAINED_ONCE}\nif dist.is_initialized():\n    dist.destroy_process_group()\n",
        "if dist.is_initialized():",
    ),
    "generator": (
        f"import contextlib\n@contextlib.contextmanager\ndef group():\n    {INIT}    yield\n    dist.destroy_process_group()\n"
        f"with group():\n    {TRAINED_ONCE}\n",
        "    dist.destroy_process_group()",
    ),
}
CLOSED = {
    "finally": f"{INIT}try:\n    dist.barrier()\nfinally:\n    dist.destroy_process_group()\n",
    "helper in finally": f"def end():\n    dist.destroy_process_group()\n{INIT}try:\n    dist.barrier()\nfinally:\n    end()\n",
    "guarded in finally": f"{INIT}try:\n    dist.barrier()\nfinally:\n    if dist.is_initialized():\n"
    f"        dist.destroy_process_group()\n",
    "at exit": f"import atexit\n{INIT}atexit.register(dist.destroy_process_group)\n",
    "generator": f"import contextlib\n@contextlib.contextmanager\ndef group():\n    {INIT}    try:\n        yield\n    finally:\n"
    "        dist.destroy_process_group()\nwith group():\n    dist.barrier()\n",
    "object": f"class Group:\n    def __enter__(self):\n        {INIT}    def __exit__(self, *e):\n"
    f"        dist.destroy_process_group()\n"
    "with Group():\n    dist.barrier()\n",
    "framework": f"import deepspeed\n{INIT}",
    "no group": "model = torch.nn.Linear(1, 1)\n",
    "helper file": "def start():\n    dist.init_process_group('nccl')\n",
}


@pytest.mark.parametrize("style", OPEN)
def test_process_group_left_open(style: str, tmp_path: Path) -> None:
    text, place = OPEN[style]
    setup = {"setup.py": "import torch.distributed as dist\ndef start():\n    dist.init_process_group('nccl')\n"}
    context = audited(tmp_path, HEAD + text, setup)
    (finding,) = findings("DDP604", context)
    assert finding.severity == "info"
    assert context.program.sources["train.py"][finding.span.line - 1].startswith(place.rstrip("\n")) or place in (
        context.program.line("train.py", finding.span.line)
    )


ONLY_POSSIBLE = {
    "gloo": OPEN["never"][0].replace("nccl", "gloo"),
    "an option that is gloo": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--backend', default='gloo')\n"
    + OPEN["never"][0].replace("'nccl'", "p.parse_args().backend"),
    "no training": OPEN["normal path"][0].replace(TRAINED_ONCE, "dist.barrier()"),
}


@pytest.mark.parametrize("style", ONLY_POSSIBLE)
def test_a_group_whose_end_nobody_sees_is_only_possible(style: str, tmp_path: Path) -> None:
    context = audited(tmp_path, HEAD + ONLY_POSSIBLE[style])
    assert findings("DDP604", context) == [] and len(findings("DDP604", context, "possible")) == 1


@pytest.mark.parametrize("style", CLOSED)
def test_process_group_that_is_destroyed(style: str, tmp_path: Path) -> None:
    assert findings("DDP604", audited(tmp_path, HEAD + CLOSED[style])) == []


RESUMED = (
    f"{SETUP}{SAMPLED}opt = torch.optim.SGD(model.parameters(), lr=0.1)\nif os.path.exists('c.pt'):\n"
    "    c = torch.load('c.pt')\n    model.load_state_dict(c['model'])\n    opt.load_state_dict(c['opt'])\n"
)
SAVE = "torch.save({'model': model.state_dict(), 'opt': opt.state_dict(), 'step': 3}, 'c.pt')\n"
UNSAVED = {
    "display": RESUMED + LOOP + SAVE,
    "variable": f"{RESUMED}{LOOP}c = dict(model=1, optimizer=2, iteration=3)\nc['lr'] = 0.1\ntorch.save(c, 'c.pt')\n",
    "helper": f"def save(state):\n    torch.save(state, 'c.pt')\n{RESUMED}{LOOP}if dist.get_rank() == 0:\n"
    "    save({'state_dict': 1, 'optimizer': 2, 'step': 3})\n",
    "epoch alone": RESUMED + LOOP + SAVE.replace("'step'", "'epoch'"),
}
SAVED = {
    "rng": RESUMED + LOOP + SAVE.replace("'step': 3", "'rng_state': torch.get_rng_state()"),
    "other file": RESUMED + LOOP + SAVE + "torch.save(torch.get_rng_state(), 'rng.pt')\n",
    "sampler": RESUMED + LOOP + SAVE.replace("'step'", "'sampler'"),
    "epoch and set_epoch": RESUMED
    + LOOP.replace("    for x", "    sampler.set_epoch(epoch)\n    for x")
    + SAVE.replace("'step'", "'epoch'"),
    "weights": RESUMED + LOOP + "torch.save(model.state_dict(), 'c.pt')\ntorch.save({'model': 1, 'config': 2}, 'd.pt')\n",
    "no resume": f"{SETUP}{SAMPLED}opt = torch.optim.SGD(model.parameters(), lr=0.1)\n{LOOP}{SAVE}",
    "no training": RESUMED + SAVE,
    "unknown": f"import library\n{RESUMED}{LOOP}torch.save(library.state(), 'c.pt')\n",
}


@pytest.mark.parametrize("style", UNSAVED)
def test_checkpoint_without_random_state(style: str, tmp_path: Path) -> None:
    context = audited(tmp_path, HEAD + UNSAVED[style])
    (finding,) = findings("DDP704", context)
    assert finding.severity == "info" and "torch.save(" in context.program.line("train.py", finding.span.line)


@pytest.mark.parametrize("style", SAVED)
def test_checkpoint_that_is_complete_or_none(style: str, tmp_path: Path) -> None:
    assert findings("DDP704", audited(tmp_path, HEAD + SAVED[style])) == []
