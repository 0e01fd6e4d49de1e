"""What the interpreted run of a script computes: sizes, lengths, control flow, and what it admits that it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpreted import constructed, predicted, sizes

from ddp_audit.events import STEP


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
