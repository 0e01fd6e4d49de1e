"""What the interpreted run of a script computes: sizes, lengths, control flow, and what it admits that it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options
from ddp_audit.events import STEP, Event
from ddp_audit.explore.exact import Bounds, Run, predict
from ddp_audit.explore.proof import Predicted
from ddp_audit.predicted import job_of
from ddp_audit.report import run_json, run_text

HEAD = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""


def predicted(folder: Path, body: str, *settings: str, steps: int | None = None, both_ways: bool = False) -> Run:
    """The predicted run of a script with this text after the usual imports."""
    (folder / "script.py").write_text(HEAD + body)
    options = Options(settings=settings, defaults_hold=True)
    job = job_of([folder / "script.py"], options, bounds=Bounds(steps=steps, ticks=50_000))
    assert job is not None
    return predict(job, both_ways=both_ways)


def judged(run: Run) -> Predicted:
    """A run for a report, with nothing proven."""
    return Predicted(run, run.kind, run.why, None, ())


def sizes(run: Run, origin: str, rank: int = 0) -> list[tuple[int | None, str | None]]:
    """Sizes and types of a rank's collectives of one origin."""
    return [(e.numel, e.dtype) for e in run.collectives(rank) if e.origin == origin]


def constructed(folder: Path, module: str) -> list[tuple[int | None, str | None]]:
    """What DDP's constructor broadcasts for a module: number of shape entries, then parameters and buffers by dtype."""
    return sizes(predicted(folder, f"model = DDP({module})\n"), "ddp-constructor")[1:]


def test_a_long_map_over_a_function_of_a_library_is_bounded(tmp_path: Path) -> None:
    run = predicted(tmp_path, "import random\nx = list(map(random.choice, [[1]] * 60_000))\ndist.barrier()\n")
    assert "50,000 statements" in run.cut[0] and not run.collectives(0)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("nn.Linear(4, 3)", [(6, "int64"), (15, "float32")]),
        ("nn.Linear(4, 3, bias=False)", [(4, "int64"), (12, "float32")]),
        ("nn.Conv2d(3, 8, 3)", [(10, "int64"), (224, "float32")]),
        ("nn.Conv2d(4, 8, (1, 3), groups=2)", [(10, "int64"), (56, "float32")]),
        ("nn.ConvTranspose1d(4, 6, 5)", [(8, "int64"), (126, "float32")]),
        ("nn.BatchNorm1d(5)", [(4, "int64"), (20, "float32"), (1, "int64")]),
        ("nn.LayerNorm((2, 3))", [(8, "int64"), (12, "float32")]),
        ("nn.GroupNorm(2, 6)", [(4, "int64"), (12, "float32")]),
        ("nn.Embedding(10, 4)", [(4, "int64"), (40, "float32")]),
        ("nn.LSTM(3, 5, num_layers=2)", [(24, "int64"), (20 * 3 + 20 * 5 + 40 + 20 * 5 + 20 * 5 + 40, "float32")]),
        ("nn.MultiheadAttention(8, 2)", [(12, "int64"), (3 * 64 + 24 + 64 + 8, "float32")]),
        ("nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2).double())", [(12, "int64"), (15, "float32"), (8, "float64")]),
        ("nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])", [(18, "int64"), (18, "float32")]),
    ],
)
def test_sizes_of_layers(tmp_path: Path, module: str, expected: list[tuple[int, str]]) -> None:
    assert constructed(tmp_path, module) == expected


def test_layers_have_the_sizes_that_torch_gives_them() -> None:
    torch = pytest.importorskip("torch")
    from ddp_audit.explore.exact.layer_table import make

    for name, args in (
        ("Linear", [4, 3]), ("Conv1d", [4, 6, 5]), ("Conv3d", [2, 4, 3]), ("ConvTranspose2d", [4, 6, 3]), ("BatchNorm2d", [7]),
        ("InstanceNorm2d", [3]), ("LayerNorm", [5]), ("GroupNorm", [2, 4]), ("RMSNorm", [6]), ("Embedding", [9, 2]),
        ("EmbeddingBag", [9, 2]), ("PReLU", [3]), ("LSTM", [3, 4, 2]), ("GRU", [3, 4]), ("RNN", [3, 4]), ("ReLU", []),
        ("MultiheadAttention", [8, 2]), ("TransformerEncoderLayer", [8, 2, 16]), ("CrossEntropyLoss", []), ("Dropout", [0.1]),
    ):  # fmt: skip
        real, ours = getattr(torch.nn, name)(*args), make(f"torch.nn.{name}", args, {})
        assert [(n, tuple(p.shape)) for n, p in real.named_parameters()] == [(n, p.shape) for n, p in ours.named_parameters()]
        assert [(n, tuple(b.shape)) for n, b in real.named_buffers()] == [(n, b.shape) for n, b in ours.named_buffers()]


def test_a_module_of_the_project_registers_in_order_and_shares_once(tmp_path: Path) -> None:
    body = """
class Net(nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers.append(nn.Linear(width, 2 * width))
        self.head = nn.Linear(2 * width, width)
        self.tied = nn.Linear(2 * width, width)
        self.tied.weight = self.head.weight
        self.register_buffer("mask", torch.tril(torch.ones(width, width)))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x * self.scale)[..., : x.shape[-1]]
        return self.head(torch.cat([x, x], dim=-1)) + self.tied(torch.cat([x, x], dim=-1))


model = DDP(Net(4))
model(torch.randn(2, 4)).sum().backward()
"""
    run = predicted(tmp_path, body)
    numel = 4 + 2 * (32 + 8) + 32 + 4 + 4
    assert sizes(run, "ddp-constructor")[2] == (numel + 16, "float32")
    assert sizes(run, "ddp-bucket") == [(numel, "float32")]
    assert run.notes == []


def test_parameters_that_the_forward_does_not_use_are_noted_and_stop_the_next_one(tmp_path: Path) -> None:
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(2, 2)
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)


model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(2, 2)).sum().backward()
    optimizer.step()
"""
    run = predicted(tmp_path, body)
    assert "spare.weight" in run.notes[0]
    assert "Expected to have finished reduction" in run.raised[0]
    assert len(run.local_steps()) == 2  # one on each rank: the error comes in the forward after it


def test_loaders_of_known_length_run_to_their_end(tmp_path: Path) -> None:
    body = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

data = TensorDataset(torch.randn(25, 3), torch.randn(25))
train, rest = random_split(data, [21, 4])
loader = DataLoader(train, batch_size=4, sampler=DistributedSampler(train, shuffle=False))
for x, y in loader:
    dist.all_reduce(x.sum(dim=1))
count = torch.tensor([len(loader), len(loader.dataset)])
dist.all_reduce(count)
assert len(loader) == 3 and len(rest) == 4
"""
    run = predicted(tmp_path, body)
    assert run.kind == "completes"
    assert sizes(run, "user") == [(4, "float32"), (4, "float32"), (3, "float32"), (2, "int64")]


def test_a_split_by_hand_of_unequal_length_hangs(tmp_path: Path) -> None:
    body = """
items = list(range(7))[rank::world_size]
for item in items:
    dist.all_reduce(torch.ones(item + 1))
"""
    run = predicted(tmp_path, body)
    assert run.kind in ("hangs", "aborts")
    assert [len(run.collectives(rank)) for rank in (0, 1)] == [4, 3]


def test_a_loop_of_unknown_length_is_cut_and_says_so(tmp_path: Path) -> None:
    body = """
model = DDP(nn.Linear(2, 2))
for line in open("data.txt"):
    model(torch.randn(2, 2)).sum().backward()
dist.barrier()
"""
    run = predicted(tmp_path, body)
    assert len(sizes(run, "ddp-bucket")) == 3
    assert any("unknown length" in bound for bound in run.bounds)
    assert run.certain[0] < len(run.sequences[0])  # the barrier's place is not known


def test_control_flow_of_python(tmp_path: Path) -> None:
    body = """
import contextlib
import functools
from dataclasses import dataclass, field


@dataclass
class Config:
    width: int = 3
    sizes: list = field(default_factory=lambda: [1, 2])

    @property
    def total(self):
        return self.width + sum(self.sizes)


@contextlib.contextmanager
def around(value):
    dist.all_reduce(torch.ones(value))
    try:
        yield value + 1
    finally:
        dist.all_reduce(torch.ones(value + 2))


def numbers(limit):
    n = 0
    while True:
        if n >= limit:
            return
        yield n
        n += 1


def counted(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return inner


@counted
def plus(a, *, b=1, **rest):
    return a + b + len(rest)


class Base:
    def size(self):
        return 5


class Derived(Base):
    def size(self):
        return super().size() + 1


config = Config(width=4)
with around(config.total) as inside:
    dist.all_reduce(torch.ones(inside))
for n in numbers(10):
    if n == 1:
        continue
    if n == 3:
        break
    dist.all_reduce(torch.ones(20 + n))
else:
    dist.all_reduce(torch.ones(99))
try:
    {}["missing"]
except (KeyError, ValueError) as error:
    dist.all_reduce(torch.ones(30))
finally:
    dist.all_reduce(torch.ones(31))
dist.all_reduce(torch.ones(plus(1, b=2, c=3)))
dist.all_reduce(torch.ones(Derived().size()))
match config.width:
    case 3:
        dist.all_reduce(torch.ones(98))
    case 4:
        dist.all_reduce(torch.ones(40))
a, *b = [x for x in range(6) if x % 2]
dist.all_reduce(torch.ones(50 + a + len(b)))
"""
    run = predicted(tmp_path, body)
    assert not run.raised and not run.cut
    assert [numel for numel, _ in sizes(run, "user")] == [7, 8, 9, 20, 22, 30, 31, 5, 6, 40, 53]


def test_an_unknown_condition_is_taken_alike_and_told(tmp_path: Path) -> None:
    body = """
if os.path.exists("checkpoint.pt"):
    dist.barrier()
if not torch.cuda.is_available():
    dist.all_reduce(torch.ones(1))
else:
    raise RuntimeError("no")
"""
    run = predicted(tmp_path, body)
    assert [a.text for a in run.assumptions] == ['os.path.exists("checkpoint.pt")', "not torch.cuda.is_available()"]
    assert [e.op for e in run.collectives(0)] == ["all_reduce"]
    assert run.divergences() == []


def test_a_condition_on_local_data_is_tried_both_ways(tmp_path: Path) -> None:
    body = """
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(2, 2)).sum()
    if torch.isnan(loss):
        continue
    loss.backward()
    optimizer.step()
"""
    run = predicted(tmp_path, body, both_ways=True)
    assert run.kind == "completes"
    assert [(v.assumption.text, v.run.kind) for v in run.variants] == [("torch.isnan(loss)", "hangs")]


def test_groups_and_object_collectives(tmp_path: Path) -> None:
    body = """
pairs = dist.new_group([0, 1])
alone = dist.new_group([1])
dist.all_reduce(torch.ones(3), group=alone)
dist.broadcast(torch.ones(2), src=1, group=pairs)
found = [None] * world_size
dist.all_gather_object(found, rank)
dist.reduce(torch.ones(4), 0, op=dist.ReduceOp.MAX)
"""
    run = predicted(tmp_path, body)
    assert [(e.op, e.group, e.root, e.reduce_op) for e in run.collectives(0)] == [
        ("broadcast", "1", 1, None), ("all_gather", "default", None, None), ("all_gather", "default", None, None),
        ("reduce", "default", 0, "max"),
    ]  # fmt: skip
    assert len(run.collectives(1)) == len(run.collectives(0)) + 1
    assert run.kind == "completes"


def test_options_of_the_job_replace_defaults(tmp_path: Path) -> None:
    body = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=4)
parser.add_argument("--fast", action="store_true")
args = parser.parse_args()
dist.all_reduce(torch.ones(args.width))
if args.fast:
    dist.barrier()
"""
    assert [e.numel for e in predicted(tmp_path, body).collectives(0)] == [4]
    assert [e.op for e in predicted(tmp_path, body, "width=9", "fast=True").collectives(0)] == ["all_reduce", "barrier"]


def test_a_call_of_nothing_known_is_survived(tmp_path: Path) -> None:
    body = """
import numpy as np
import some_library

engine = some_library.Engine(model=nn.Linear(2, 2), hooks={"a": lambda x: x})
for batch, (left, right) in enumerate(engine.batches()):
    engine[batch] = np.asarray(left) @ right + batch
    engine.loss(*[left], **{"right": right}).backward()
print(f"{engine.state:>10} {rank}")
dist.barrier()
"""
    run = predicted(tmp_path, body)
    assert not run.raised and not run.cut
    assert run.collectives(0)[-1].op == "barrier"


def test_an_endless_run_is_cut(tmp_path: Path) -> None:
    run = predicted(tmp_path, "while True:\n    pass\n")
    assert run.kind == "goes on"
    assert "50,000 statements" in run.cut[0]


def test_steps_are_counted_to_a_bound(tmp_path: Path) -> None:
    body = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + (
        "for _ in range(100):\n    model(torch.randn(2, 2)).sum().backward()\n    optimizer.step()\n"
    )
    run = predicted(tmp_path, body, steps=3)
    assert sum(e.kind == STEP for e in run.sequences[1]) == 3
    assert run.kind == "goes on"


# ---- reports


def test_the_report_fits_a_terminal_and_shows_the_ranks_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = """
model = DDP(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    with model.no_sync():
        loss = model(torch.randn(2, 2)).sum()
    loss.backward()
    optimizer.step()
    if rank == 0 and step == 1:
        dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX)
"""
    text = run_text.render(judged(predicted(tmp_path, body)), "script.py")
    assert max(map(len, text.splitlines())) <= 80
    assert "The run hangs" in text or "aborted" in text
    row = next(line for line in text.splitlines() if "all_reduce of 3 float32, max" in line)
    assert " ! " in row
    assert "LOCAL 0.weight, 0.bias" in text
    assert "up to 3 steps on ranks 0 and 1" in text


def test_the_json_lists_each_rank(tmp_path: Path) -> None:
    found = run_json.as_object(judged(predicted(tmp_path, "dist.broadcast(torch.ones(2), src=1)\n")), "script.py")
    assert found["outcome"] == "completes"
    for rank in ("0", "1"):
        event: Event = found["ranks"][rank][0]
        assert event == {
            "kind": "collective", "op": "broadcast", "origin": "user", "numel": 2, "dtype": "float32", "root": 1,
            "reduce_op": None, "site": found["ranks"]["0"][0]["site"],
        }  # fmt: skip


def test_the_guard_that_parts_the_ranks_is_named_across_calls(tmp_path: Path) -> None:
    body = """
def is_main():
    return rank == 0


def report(value):
    dist.all_reduce(value)


for step in range(3):
    if is_main():
        pass
    if step == 1:
        if is_main():
            report(torch.ones(2))
    dist.barrier()
"""
    run = predicted(tmp_path, body)
    assert run.kind == "hangs"
    [found] = run_json.as_object(judged(run), "script.py")["divergences"][0]["guards"].values()
    assert (found["text"], found["taken"]) == ("is_main()", True)
    text = run_text.render(judged(run), "script.py")
    assert "is true on rank 0 (lines 24 > 16)" in " ".join(text.split())


# ---- loops of unknown length, and ranks that leave early

LINES = """
import sys
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
every = {every}
for number, line in enumerate(sys.stdin):
    model.require_backward_grad_sync = (number + 1) % every == 0
    model(torch.randn(4, 4)).mean().backward()
    if (number + 1) % every == 0:
        optimizer.step()
        optimizer.zero_grad()
{after}
"""


@pytest.mark.parametrize(("every", "times", "buckets"), [(1, 3, 3), (2, 5, 2), (4, 9, 2), (500, 3, 0)])
def test_a_loop_of_unknown_length_comes_to_a_steady_state(tmp_path: Path, every: int, times: int, buckets: int) -> None:
    run = predicted(tmp_path, LINES.format(every=every, after=""))
    assert len(sizes(run, "ddp-bucket")) == buckets
    (bound,) = run.bounds
    assert f"ran {times} times" in bound and bound.endswith("script.py:15)")
    assert ("two windows of" in bound) is (times > 3)
    assert "Not followed to its end" in run_text.render(judged(run), "script.py")


def test_a_part_of_a_last_window_is_seen(tmp_path: Path) -> None:
    assert predicted(tmp_path, LINES.format(every=4, after="")).local_steps() == []
    after = predicted(tmp_path, LINES.format(every=4, after="optimizer.step()")).local_steps()
    assert len(after) == 2 and {e.site.line for e in after if e.site} == {21}


def test_a_while_of_unknown_length_has_windows_too(tmp_path: Path) -> None:
    body = "import sys\nnumber = 0\nwhile sys.stdin.read(1):\n    number += 1\n    if number % 3 == 0:\n        dist.barrier()\n"
    run = predicted(tmp_path, body)
    assert [e.op for e in run.collectives(0)] == ["barrier", "barrier"]
    assert any("two windows of 3" in bound for bound in run.bounds)


@pytest.mark.parametrize(
    ("body", "guards"),
    [
        ("def f():\n    if rank != 0:\n        return\n    dist.barrier()\nf()\n", {0: ("rank != 0", False)}),
        ("for i in range(3):\n    if i % 2 == rank:\n        continue\n    dist.all_reduce(torch.ones(2))\n", {1: ("i % 2 == rank", False)}),
        ("def f():\n    if rank == 0:\n        pass\n    else:\n        return\n    dist.barrier()\nf()\n", {0: ("rank == 0", True)}),
        ("if rank == 0:\n    dist.barrier()\n", {0: ("rank == 0", True)}),
        ("def f():\n    if world_size < 2:\n        return\n    if rank == 0:\n        dist.barrier()\nf()\n", {0: ("rank == 0", True)}),
    ],
    ids=["return", "continue", "the other arm returns", "around it", "one that all ranks take alike"],
)  # fmt: skip
def test_the_guard_of_the_first_divergence_is_named(tmp_path: Path, body: str, guards: dict[int, tuple[str, bool]]) -> None:
    run = predicted(tmp_path, body)
    first = run.divergences()[0]
    found = {rank: run.guard_of(rank, event) for rank, event in first.ranks.items() if event is not None}
    assert {rank: (taken.text, taken.answer) for rank, taken in found.items() if taken is not None} == guards


def test_an_early_exit_guards_no_more_than_the_rest_of_its_block(tmp_path: Path) -> None:
    body = "def f():\n    if rank != 0:\n        return\n    print('first')\nf()\nif rank == 1:\n    dist.barrier()\n"
    run = predicted(tmp_path, body)
    guard = run.guard_of(1, run.collectives(1)[0])
    assert guard is not None and guard.text == "rank == 1"
    after = predicted(tmp_path, "def f():\n    if rank != 0:\n        return\nf()\ndist.all_reduce(torch.ones(1 + rank))\n")
    assert after.guard_of(0, after.collectives(0)[0]) is None


@pytest.mark.parametrize(
    "text",
    [
        "import lightning as L\nL.Trainer(devices=2).fit(L.LightningModule())\n",
        "from accelerate import Accelerator\nmodel = Accelerator(cpu=True).prepare(nn.Linear(4, 1))\nmodel(torch.ones(2, 4)).sum().backward()\n",
        "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine(model=nn.Linear(4, 1)).train()\n",
        "import deepspeed\nengine, *_ = deepspeed.initialize(model=nn.Linear(4, 1))\nengine.step()\n",
        "from torch.distributed.optim import ZeroRedundancyOptimizer as ZeRO\n"
        "ZeRO(nn.Linear(4, 1).parameters(), torch.optim.SGD, lr=0.1).step()\n",
    ],
    ids=["lightning", "accelerate", "trainer of one's own", "deepspeed", "ZeRO"],
)
def test_a_library_that_communicates_by_itself_leaves_the_end_open(tmp_path: Path, text: str) -> None:
    run = predicted(tmp_path, "dist.barrier()\n" + text)
    assert len(run.collectives(0)) == 1
    assert run.kind in ("goes on", "nothing predicted") and not run.is_whole
    assert any("not followed" in bound for bound in run.bounds)
    assert run.certain[0] <= len(run.sequences[0])  # what came before still holds
    shown = run_text.render(judged(run), "script.py")
    assert "The run completes" not in shown and "Not followed to its end" in shown


def test_harmless_names_of_such_a_library_are_passed_over(tmp_path: Path) -> None:
    text = "from accelerate.utils import set_seed\nfrom transformers import GPT2Config\nset_seed(1)\nGPT2Config()\ndist.barrier()\n"
    run = predicted(tmp_path, text)
    assert run.kind == "completes" and run.bounds == []
