"""Fixes that wait first (DDP208), seed by rank (DDP308), and set the device before the group is made (DDP602)."""

from __future__ import annotations

from pathlib import Path

import pytest
from mending import HEAD, mended, refusals, text_after

from ddp_audit.audit import Options, audit
from ddp_audit.fix.rounds import apply_fixes

# DDP208

START = HEAD + "total = torch.ones(1)\nwork = dist.all_reduce(total, async_op=True)\n"


def test_a_later_wait_moves_before_the_use() -> None:
    before = START + "\n# the sum\nprint(total.item())\nx = 1\n# now\nwork.wait()  # all\nprint(x)\n"
    outcome = mended(before, "DDP208", unsafe=False)
    assert text_after(outcome) == START + "\n# now\nwork.wait()  # all\n# the sum\nprint(total.item())\nx = 1\nprint(x)\n"
    assert mended(text_after(outcome), "DDP208").changed == []


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (
            "if rank == 0:\n    print(total.item())\nwork.wait()\n",
            "if rank == 0:\n    work.wait()\n    print(total.item())\nwork.wait()\n",
        ),
        ("while total.item() > 3:\n    total = total - 1\n", "work.wait()\nwhile total.item() > 3:\n    total = total - 1\n"),
        ("total /= 2\nif rank:\n    work.wait()\n", "work.wait()\ntotal /= 2\nif rank:\n    work.wait()\n"),
    ],
)
def test_a_wait_is_written_where_none_comes_behind_the_use(lines: str, after: str) -> None:
    assert text_after(mended(START + lines, "DDP208")) == START + after


def test_without_a_handle_the_call_waits_itself() -> None:
    call = "dist.all_reduce(\n    total,\n    async_op=True,  # fast\n)\n"
    before = HEAD + "total = torch.ones(1)\ndist.all_reduce(total, async_op=True)\nprint(total.item())\n"
    assert text_after(mended(before, "DDP208")) == before.replace(", async_op=True", "")
    after = text_after(mended(before.replace("dist.all_reduce(total, async_op=True)\n", call), "DDP208"))
    assert "dist.all_reduce(\n    total,  # fast\n)\n" in after


def test_a_wait_that_others_may_hold_up_is_unsafe() -> None:
    before = START + "print(total.item())\nwork.wait()\n"
    assert mended("import torch\n" + before + "group = dist.new_group([0])\n", "DDP208", unsafe=False).held_back == 1
    assert mended(before, "DDP208", unsafe=False).held_back == 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("work = dist.all_reduce(total, async_op=True)\nwork = None\nprint(total.item())\n", "work is given another value"),
        (
            "group = dist.new_group([0, 1])\nwork = dist.all_reduce(total, group=group, async_op=True)\nprint(total.item())\n",
            "nothing waits for work",
        ),
        ("work = dist.irecv(total, 1 - rank)\nprint(total.item())\n", "nothing waits for work"),
        ("dist.irecv(total, 1 - rank)\nprint(total.item())\n", "not kept"),
        ("works = [dist.all_reduce(total, async_op=True)]\nprint(total.item())\n", "not known here"),
        ("self.work = dist.all_reduce(total, async_op=True)\nprint(total.item())\n", "no plain name"),
        (
            "if len(data):\n    work = dist.all_reduce(total, async_op=True)\nprint(total.item())\n",
            "not surely started",
        ),
    ],
)
def test_other_ways_to_start_stay(lines: str, reason: str) -> None:
    outcome = mended(HEAD + "total = torch.ones(1)\n" + lines, "DDP208")
    assert outcome.changed == [] and [reason in text for text in refusals(outcome)] == [True], refusals(outcome)


# DDP308

IMPORTS_ALONE = HEAD[: HEAD.index("\ndist.init")]
LOOP = "\n# training\nfor step in range(3):\n    model(torch.randn(8, 4)).mean().backward()\n"
NUMPY = LOOP.replace("torch.randn(8, 4)", "torch.from_numpy(numpy.random.randn(8, 4))")


@pytest.mark.parametrize(
    ("seed", "loop", "new"),
    [
        ("torch.manual_seed(7)\n", LOOP, "torch.manual_seed(7 + rank)"),
        ("seed = len(data)\ntorch.manual_seed(seed)\n", LOOP, "torch.manual_seed(seed + rank)"),
        ("def start(seed):\n    torch.manual_seed(seed)\n\n\nstart(seed=3)\n", LOOP, "torch.manual_seed(3 + rank)"),
        ("import numpy.random\nnumpy.random.seed(7)\n", NUMPY, "numpy.random.seed(7 + rank)"),
    ],
    ids=["number", "name", "in a helper", "numpy"],
)
def test_a_seed_by_rank_before_the_loop(seed: str, loop: str, new: str) -> None:
    outcome = mended(HEAD + seed + loop, "DDP308")
    assert text_after(outcome) == HEAD + seed + loop.replace("\n# training", f"\n{new}\n# training")
    assert outcome.result.findings == [] and mended(HEAD + seed + loop, "DDP308", unsafe=False).held_back == 1


@pytest.mark.parametrize(
    ("seed", "loop"),
    [
        ("def start(seed):\n    torch.manual_seed(seed)\n\n\nstart(len(data))\n", LOOP),
        ("def start(seed):\n    seed = seed + 1\n    torch.manual_seed(seed)\n\n\nstart(int(input()))\n", LOOP),
        ("seed = len(data)\ntorch.manual_seed(seed)\nseed = 5\n", LOOP),
        ("torch.manual_seed(len(data))\n", LOOP),
    ],
    ids=["unknown in a helper", "changed in a helper", "changed", "an expression"],
)
def test_a_seed_that_is_not_known_there_stays(seed: str, loop: str) -> None:
    outcome = mended(HEAD + seed + loop, "DDP308")
    assert outcome.changed == [] and [text.startswith("the seed is not known") for text in refusals(outcome)] == [True]


@pytest.mark.parametrize(
    "loop",
    [
        LOOP + "    torch.utils.data.random_split(data, [8, 8])\n",
        LOOP.replace("    model", "    if torch.rand(1) < 0.5:\n        dist.barrier()\n    model"),
    ],
    ids=["a split", "a condition on chance"],
)
def test_where_the_ranks_must_draw_alike_no_fix_is_offered(loop: str) -> None:
    outcome = mended(HEAD + "torch.manual_seed(7)\n" + loop, "DDP308")
    assert outcome.fixed == [] and [f.fix.safety for f in outcome.result.findings if f.fix] == ["display-only"]


SPAWNED = IMPORTS_ALONE + (
    "import argparse\n\n\ndef train(number, args):\n    if args.ranks > 1:\n        dist.init_process_group('gloo', rank=number, world_size=2)\n"
    "    model = DDP(torch.nn.Linear(4, 1))\n    for step in range(3):\n        model(torch.randn(8, 4)).mean().backward()\n\n\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--seed', type=int, default=3)\n"
    "parser.add_argument('--ranks', type=int, default=2)\nargs = parser.parse_args()\n"
    "if __name__ == '__main__':\n    torch.manual_seed(args.seed)\n    torch.multiprocessing.spawn(train, nprocs=2, args=(args,))\n"
)


def test_a_seed_that_is_handed_over_is_used_in_what_is_spawned() -> None:
    line = "        dist.init_process_group('gloo', rank=number, world_size=2)\n"
    after = SPAWNED.replace(line, line + "        torch.manual_seed(args.seed + number)\n")
    outcome = mended(SPAWNED, "DDP308")
    assert text_after(outcome) == after and outcome.result.findings == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    torch.manual_seed(args.seed)", "    if args.seed is not None:\n        torch.manual_seed(args.seed)"),
        ("args=(args,)", "args=(vars(args),)"),
        ("def train(number, args):\n", "def train(number, args):\n    args = args.train\n"),
        ("def train(number, args):\n", "def train(number, given):\n    print(given)\n"),
    ],
    ids=["perhaps none", "not handed over", "another object", "another name"],
)
def test_a_seed_that_what_is_spawned_may_not_have_stays(old: str, new: str) -> None:
    assert old in SPAWNED
    assert mended(SPAWNED.replace(old, new), "DDP308").changed == []


# DDP602

IMPORTS = HEAD[: HEAD.index("dist.init")]
GROUP = 'dist.init_process_group("nccl")\n'
TRAIN = "model = DDP(torch.nn.Linear(4, 1).cuda())\nmodel(torch.ones(2, 4).cuda()).mean().backward()\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (IMPORTS + GROUP, "import os\n\n" + IMPORTS + 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n' + GROUP),
        (
            "import os\n" + IMPORTS + "local_rank = int(os.environ['LOCAL_RANK'])\n\n# all\n" + GROUP,
            "import os\n"
            + IMPORTS
            + "local_rank = int(os.environ['LOCAL_RANK'])\n\ntorch.cuda.set_device(local_rank)\n# all\n"
            + GROUP,
        ),
    ],
    ids=["read", "known"],
)
def test_a_device_is_set_before_the_group(before: str, after: str) -> None:
    outcome = mended(before + TRAIN, "DDP602")
    assert text_after(outcome) == after + TRAIN and outcome.result.findings == []


def test_a_script_that_also_runs_without_cuda_asks_first() -> None:
    text = IMPORTS + GROUP + "if torch.cuda.is_available():\n    print()\n" + TRAIN
    new = 'if torch.cuda.is_available():\n    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n' + GROUP
    assert new in text_after(mended(text, "DDP602"))


def test_a_device_that_is_set_too_late_moves_up() -> None:
    start = "import os\n" + IMPORTS + "local = int(os.environ['LOCAL_RANK'])\n"
    late = GROUP + "names = [None]\ndist.broadcast_object_list(names)\n# mine\ntorch.cuda.set_device(local)\n"
    after = "# mine\ntorch.cuda.set_device(local)\n" + GROUP + "names = [None]\ndist.broadcast_object_list(names)\n"
    assert text_after(mended(start + late + TRAIN, "DDP602")) == start + after + TRAIN


def test_a_device_that_follows_from_the_group_stays() -> None:
    late = GROUP + "names = [None]\ndist.broadcast_object_list(names)\nrank = dist.get_rank()\ntorch.cuda.set_device(rank % 8)\n"
    outcome = mended(IMPORTS + late + TRAIN, "DDP602")
    assert outcome.changed == [] and [text.startswith("the device depends on rank") for text in refusals(outcome)] == [True]


def test_where_no_launcher_sets_the_local_rank_no_fix_is_offered() -> None:
    given = GROUP.replace(")", ", rank=int(input()), world_size=2)")
    outcome = mended(IMPORTS + given + TRAIN, "DDP602")
    assert outcome.fixed == [] and [f.fix.safety for f in outcome.result.findings if f.fix] == ["display-only"]


def test_a_fix_that_brings_what_no_fix_mends_is_taken_back() -> None:
    Path("train.py").write_text(
        "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n\n\n"
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n\n"
        "    def forward(self, x):\n        x = self.a(x + torch.randn_like(x))\n"
        "        return self.b(x) if torch.rand(1) < 0.5 else x\n\n\n"
        "dist.init_process_group('gloo')\ntorch.manual_seed(3)\nmodel = DDP(Net())\n"
        "for step in range(4):\n    model(torch.ones(2, 4)).sum().backward()\n"
    )
    options = Options(select=["DDP308", "DDP109"])
    outcome = apply_fixes(lambda overlay: audit(["train.py"], options, overlay=overlay), {}, True)
    assert outcome.changed == [] and refusals(outcome) == ["the fix would bring DDP109"]
    assert [f.code for f in outcome.result.findings] == ["DDP308"]
