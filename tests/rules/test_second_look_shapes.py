"""Shapes that a second look at public code got wrong, each with a form in which the hazard is real."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import HEAD, audited, findings

from ddp_audit.audit import Options, audit
from ddp_audit.findings import Finding

START = HEAD + "import copy, os\ndist.init_process_group('gloo')\nrank = dist.get_rank()\nworld = dist.get_world_size()\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(folder: Path, code: str, text: str) -> list[Finding]:
    """What a whole audit says of a script of this text by one rule."""
    (folder / "train.py").write_text(text)
    return [finding for finding in audit([folder / "train.py"], Options()).findings if finding.code == code]


# ---- a function that nothing calls ends itself alone

TRAINER = """\
class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(4, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def save(self):
        if dist.get_rank() != 0:
            return
        print("saved")
{more}
    def step(self):
        self.opt.zero_grad()
        self.model(torch.ones(2, 4)).sum().backward()
        self.opt.step()
    def fit(self):
        for _ in range(3):
            self.step()
"""


@pytest.mark.parametrize(
    "run", ["if __name__ == '__main__':\n    Trainer().fit()\n", "def main():\n    Trainer().fit()\n", "trainer = Trainer()\n"]
)
def test_a_return_ends_its_own_function_alone(run: str, tmp_path: Path) -> None:
    assert findings("DDP203", audited(tmp_path, START + TRAINER.format(more="") + run)) == []
    skips = "    def late(self):\n        if dist.get_rank() != 0:\n            return\n        self.fit()"
    if "Trainer()\n" not in run:
        assert findings("DDP203", audited(tmp_path, START + TRAINER.format(more=skips) + run))


# ---- what is given up on in one arm

MEETS = "def meet():\n    t = torch.zeros(1)\n    dist.broadcast(t, 0)\n    return t\n"
GIVEN_UP = {
    "calls": "def load():\n    if rank == 0:\n        meet()\n        meet()\n    else:\n        meet()\n        {last}\n",
    "an early return": "def load():\n    if rank == 0:\n        meet()\n        return meet()\n    meet()\n    return {last}\n",
    "a loop": "def load():\n    for _ in range(2):\n        if rank:\n            meet()\n        else:\n            {last}\n",
}


@pytest.mark.parametrize("load", GIVEN_UP.values(), ids=GIVEN_UP)
def test_nothing_is_said_of_ranks_of_which_one_was_not_followed(load: str, tmp_path: Path) -> None:
    both, one = load.format(last="meet()"), load.format(last="print('one')")
    assert told(tmp_path, "DDP201", START + MEETS + both + "load()\n" * 60) == []
    assert told(tmp_path, "DDP201", START + MEETS + one + "load()\n")


# ---- the option that a launcher passes, under another name

PARSER = """\
import argparse
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument({flags}, default=0, type=int)
args = parser.parse_args()
torch.cuda.set_device(args.{name})
dist.init_process_group('nccl')
"""


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("'--rank', '--local_rank'", "rank"),
        ("'--local-rank', '--rank'", "local_rank"),
        ("'--local_rank', dest='rank'", "rank"),
        ("'-r', '--local-rank', dest='gpu_rank'", "gpu_rank"),
    ],
)
def test_the_option_of_a_launcher_is_the_local_rank_whatever_its_name(flags: str, name: str, tmp_path: Path) -> None:
    assert findings("DDP601", audited(tmp_path, PARSER.format(flags=flags, name=name))) == []


def test_an_option_called_rank_is_the_global_one(tmp_path: Path) -> None:
    text = PARSER.format(flags="'--rank'", name="rank").replace("('nccl')", "('nccl', rank=args.rank, world_size=4)")
    assert findings("DDP601", audited(tmp_path, text))


# ---- gradients that no optimizer uses

LOOKS = """\
class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner
        self.param_groups = inner.param_groups
    def step(self):
        self.inner.step()
model = DDP(torch.nn.Linear(4, 1))
opt = {optimizer}
def train():
    for _ in range(3):
        loss = model(torch.ones(2, 4)).sum()
        {zero}
        loss.backward()
        opt.step()
def look():
    model.module.zero_grad()
    model.module(torch.ones(2, 4)).sum().backward()
    print(model.module.weight.grad)
for epoch in range(3):
    if epoch >= {first}:
        train()
    look()
"""
SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize("optimizer", [SGD, f"Around({SGD})"])
@pytest.mark.parametrize("first", ["0", "1", "world"])
def test_gradients_that_are_only_looked_at_need_no_reduction(optimizer: str, first: str, tmp_path: Path) -> None:
    text = START + LOOKS.format(optimizer=optimizer, zero="opt.zero_grad()", first=first)
    assert findings("DDP101", audited(tmp_path, text)) == []
    used = START + LOOKS.format(optimizer=optimizer, zero="pass", first=first)
    assert findings("DDP101", audited(tmp_path, used))


ZEROS = {
    "of the model": "model.zero_grad()",
    "to None": "for p in model.parameters():\n            p.grad = None",
    "named": "for _, p in model.named_parameters():\n            p.grad = None",
    "of those that have one": "for p in model.parameters():\n            if p.grad is not None:\n                p.grad.zero_()",
    "in place": "[p.grad.zero_() for p in model.module.parameters() if p.grad is not None]",
    "detached": "for p in model.parameters():\n            if p.grad is not None:\n                p.grad.detach_()\n                p.grad.zero_()",
}
OF_A_PART = "for name, p in model.named_parameters():\n            if 'bias' in name:\n                p.grad = None"


@pytest.mark.parametrize("zero", ZEROS.values(), ids=ZEROS)
def test_gradients_are_zeroed_by_hand_too(zero: str, tmp_path: Path) -> None:
    assert findings("DDP101", audited(tmp_path, START + LOOKS.format(optimizer=SGD, zero=zero, first="0"))) == []
    assert findings("DDP101", audited(tmp_path, START + LOOKS.format(optimizer=SGD, zero=OF_A_PART, first="0")))


# ---- copies

UNWRAPS = "def unwrapped(m):\n    return m.module if isinstance(m, (DDP, torch.nn.DataParallel)) else m\n"
COPIES = {
    "of one of two": "copy.deepcopy(unwrapped(model)).half()",
    "of the inner module": "copy.deepcopy(model.module).half()",
    "of the wrapper": "copy.deepcopy(model).half()",
    "by a condition": "copy.deepcopy(model.module if world > 1 else model).half()",
    "by name": "other = copy.deepcopy(unwrapped(model))\n    other.half()",
}


@pytest.mark.parametrize("code", COPIES.values(), ids=COPIES)
def test_a_deep_copy_may_be_converted(code: str, tmp_path: Path) -> None:
    text = (
        START + UNWRAPS + f"model = DDP(torch.nn.Linear(4, 1))\nopt = {SGD}\nfor _ in range(3):\n    opt.zero_grad()\n"
        "    model(torch.ones(2, 4)).sum().backward()\n    opt.step()\n    " + code + "\n"
    )
    assert findings("DDP103", audited(tmp_path, text)) == []
    assert findings("DDP103", audited(tmp_path, text.replace("copy.deepcopy(", "(")))
    assert findings("DDP103", audited(tmp_path, text.replace("copy.deepcopy(", "copy.copy(")))


# ---- training on one device before that on several

SINGLE = """\
def single():
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        opt.step()
def several(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    {inside}
    for _ in range(3):
        opt.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        opt.step()
"""
JOBS = {
    "before a spawn": "single()\ntorch.multiprocessing.spawn(several, args=(2,), nprocs=2)\n",
    "alone": "single()\n",
    "before a group": "single()\nseveral(0, 2)\n",
    "called by nothing": "torch.multiprocessing.spawn(several, args=(2,), nprocs=2)\n",
    "in an arm": "if torch.cuda.device_count() < 2:\n    single()\nelse:\n    torch.multiprocessing.spawn(several, args=(2,), nprocs=2)\n",
}


@pytest.mark.parametrize("run", JOBS.values(), ids=JOBS)
def test_training_without_a_group_needs_no_wrapper(run: str, tmp_path: Path) -> None:
    head = HEAD + "import torch.multiprocessing\n"
    assert findings("DDP102", audited(tmp_path, head + SINGLE.format(inside="pass") + run)) == []
    if "several" in run:
        assert findings("DDP102", audited(tmp_path, head + SINGLE.format(inside="single()") + run))


# ---- barriers that meet from different places

TURNS = {
    "turns in order": "for turn in range(world):\n    if turn == rank:\n        print(rank)\n    dist.barrier()\n",
    "barriers before and after": "for turn in range(world):\n    if rank == turn:\n        [dist.barrier() for _ in range(rank)]\n"
    "        print(rank)\n        [dist.barrier() for _ in range(rank, world)]\n",
    "two arms": "if rank == 0:\n    print(0)\n    dist.barrier()\nelse:\n    dist.barrier()\n    print(rank)\n",
}


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
def test_as_many_barriers_on_each_rank_are_no_hazard(turns: str, tmp_path: Path) -> None:
    assert told(tmp_path, "DDP201", START + turns) == []
    if "range(rank, world)" in turns:
        assert told(tmp_path, "DDP201", START + turns.replace("range(rank, world)", "range(2 * rank, world)"))


# ---- shares that a class of the project deals out

DEALT = """\
from random import Random
class Part:
    def __init__(self, data, index):
        self.data, self.index = data, index
    def __len__(self):
        return len(self.index)
    def __getitem__(self, at):
        return self.data[self.index[at]]
class Dealer:
    def __init__(self, data, sizes):
        self.data, self.parts = data, []
        rng = Random()
        rng.seed(7)
        left = list(range(len(data)))
        rng.shuffle(left)
        for share in sizes:
            size = int(share * len(data))
            self.parts.append(left[:size])
            left = left[size:]
    def use(self, at):
        return Part(self.data, self.parts[at])
data = TensorDataset(torch.randn(64, 4))
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader({part}, batch_size=4, shuffle=True)
for (x,) in loader:
    opt.zero_grad()
    model(x).sum().backward()
    opt.step()
"""
DEALS = {
    "by a dealer": (
        "Dealer(data, [1 / world for _ in range(world)]).use(rank)",
        "Dealer(data, [1 / world for _ in range(world)]).use(0)",
    ),
    "every so many": ("Part(data, range(rank, len(data), world))", "Part(data, range(0, len(data), world))"),
    "a slice": ("Part(data, list(range(64))[rank::world])", "Part(data, list(range(64))[::world])"),
    "a comprehension": (
        "Part(data, [i for i in range(64) if i % world == rank])",
        "Part(data, [i for i in range(64) if i % world == 0])",
    ),
    "lists": ("Part(data, [list(range(32)), list(range(32, 64))][rank])", "Part(data, [list(range(32)), list(range(32, 64))][0])"),
}


@pytest.mark.parametrize("name", DEALS)
def test_a_share_that_a_class_of_the_project_holds(name: str, tmp_path: Path) -> None:
    shared, same = DEALS[name]
    assert findings("DDP301", audited(tmp_path, START + DEALT.replace("{part}", shared))) == []
    assert findings("DDP301", audited(tmp_path, START + DEALT.replace("{part}", same)))


# ---- what only some would reach anyway, and values that are equal after all


@pytest.mark.parametrize("asked", ["os.path.exists('flag')", "len(os.listdir('.')) > 3"])
def test_a_continue_before_what_the_rank_may_not_reach_anyway(asked: str, tmp_path: Path) -> None:
    loop = "for name in os.listdir('data')[rank::world]:\n    if name in os.listdir('done'):\n        continue\n"
    behind = f"    if {asked}:\n        dist.barrier()\n"
    assert findings("DDP203", audited(tmp_path, START + loop + behind)) == []
    assert findings("DDP203", audited(tmp_path, START + loop + "    dist.barrier()\n"))


SIZES = {
    "an arm of the launcher": "if known and args.local_rank != -1:\n    size = int(os.environ['WORLD_SIZE'])\nelse:\n    size = 1\n",
    "another arm": "if not known or args.local_rank < 0:\n    size = 1\nelse:\n    size = dist.get_world_size()\n",
    "a conditional expression": "size = world if known and args.local_rank >= 0 else 1\n",
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_size_that_is_chosen_alike_on_all_ranks(size: str, tmp_path: Path) -> None:
    head = (
        START + "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank', type=int, default=-1)\n"
        "args = parser.parse_args()\nknown = bool(open('settings').read())\n"
    )
    made = "group = dist.new_group(list(range(size)))\n"
    assert findings("DDP209", audited(tmp_path, head + size + made)) == []
    assert findings("DDP209", audited(tmp_path, head + size + made.replace("range(size)", "range(rank, size)")))


# ---- a rank that has raised uses nothing any more

LOW = """\
import torch.distributed as dist
class Low:
    def __init__(self, config):
        {check}
        self.width = config.width
    def scale(self):
        dist.barrier()
        return self.width
"""
CHECKS = [
    "if config.rank <= 0:\n            raise ValueError(config.rank)",
    "assert config.rank > 0",
    "if not config.rank:\n            raise RuntimeError",
]


@pytest.mark.parametrize("check", CHECKS)
def test_a_rank_that_raised_uses_nothing_any_more(check: str, tmp_path: Path) -> None:
    assert findings("DDP204", audited(tmp_path, LOW.format(check=check))) == []
    assert findings("DDP204", audited(tmp_path, LOW.format(check="if config.rank <= 0:\n            return")))
    caught = LOW.format(
        check="try:\n            if config.rank <= 0:\n                raise ValueError\n            self.width = 1\n        except ValueError:\n            return"
    )
    assert findings("DDP204", audited(tmp_path, caught.replace("        self.width = config.width\n", "")))


# ---- an arm that no rank of a job of several takes makes no job of several

ALONE = """\
import argparse
import torch.distributed as dist
from torch.utils.data import DistributedSampler, SequentialSampler
def load(args):
    if args.local_rank == 0:
        dist.barrier()
def evaluate(args):
    load(args)
    return SequentialSampler([1]) if args.local_rank == -1 else DistributedSampler([1])
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--often", action="store_true")
args = parser.parse_args()
for step in range(9):
    if args.local_rank in (-1, 0):
        {test}
            evaluate(args)
"""
TESTS = [
    "if args.local_rank == -1 and args.often:",
    "if args.often and args.local_rank < 0:",
    "if not (args.local_rank >= 0 or not args.often):",
]


@pytest.mark.parametrize("test", TESTS)
def test_what_a_single_process_alone_does_is_no_hazard(test: str, tmp_path: Path) -> None:
    assert findings("DDP201", audited(tmp_path, ALONE.format(test=test))) == []
    assert findings("DDP201", audited(tmp_path, ALONE.format(test="if args.local_rank == 0:")))
