"""Passes over loaders in the styles that scripts are written in, and whether their data is shared out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asked import only

from ddp_audit.program.loading import draws_at_random, samplers_of, shares_out, shuffles, training_passes
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import LoaderMade, SamplerMade

Lowered = Callable[..., Program]
START = "model = DDP(torch.nn.Linear(2, 1))\nsampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        ("for epoch in range(3):\n    for x in loader:\n        model(x).sum().backward()", False),
        ("for epoch in range(3):\n    for i, x in enumerate(loader):\n        model(x).sum().backward()", False),
        ("from tqdm import tqdm\nfor epoch in range(3):\n    for i, x in enumerate(tqdm(loader)):\n"
        "        model(x).sum().backward()", False),
        ("def train(net, batches):\n    for x in batches:\n        net(x).sum().backward()\n"
         "for epoch in range(3):\n    train(model, loader)", False),
        ("def logged(it, freq):\n    for item in it:\n        yield item\n"
         "for epoch in range(3):\n    for x in logged(loader, 3):\n        model(x).sum().backward()", False),
        ("def chain(it):\n    yield from it\nfor epoch in range(3):\n    for x in chain(loader):\n"
        "        model(x).sum().backward()", False),
        ("class T:\n    def __init__(self):\n        self.loader = loader\n    def step(self, x):\n"
        "        model(x).sum().backward()\n"
         "    def epoch(self):\n        for x in self.loader:\n            self.step(x)\n    def fit(self):\n"
         "        for e in range(3):\n            self.epoch()\nT().fit()", False),
        ("for epoch in range(3):\n    for x, y in zip(loader, other):\n        model(x).sum().backward()", False),
        ("batches = iter(loader)\nfor step in range(3):\n    x = next(batches)\n    model(x).sum().backward()", True),
        ("def forever(it):\n    while True:\n        for x in it:\n            yield x\nbatches = forever(loader)\n"
         "for step in range(3):\n    x = next(batches)\n    model(x).sum().backward()", True),
    ],
)  # fmt: skip
def test_a_training_pass(lowered: Lowered, source: str, taken: bool) -> None:
    program = lowered(f"{START}{source}\n")
    (found,) = training_passes(program)
    assert found.made is only(program, LoaderMade) and found.taken is taken
    assert len(found.around) == (0 if taken else 1)
    sampler = only(program, SamplerMade).object
    assert sampler is not None and [s.key for s in samplers_of(found.made)] == [sampler.key]


@pytest.mark.parametrize(
    "source",
    [
        "for x in loader:\n    model(x)",
        "with torch.no_grad():\n    for x in loader:\n        model(x)\nmodel(torch.ones(2)).sum().backward()",
        "test = iter(loader)\nfor i in range(9):\n    model(torch.ones(2)).sum().backward()\n    with torch.no_grad():\n"
        "        model(next(test))",
        "test = iter(loader)\nfor i in range(9):\n    model(torch.ones(2)).sum().backward()\n    if i % 3 == 0:\n"
        "        model(next(test))",
    ],
)
def test_no_training_pass(lowered: Lowered, source: str) -> None:
    assert training_passes(lowered(f"{START}{source}\n")) == []


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("data = torch.utils.data.TensorDataset(x)", False),
        ("data = torch.utils.data.Subset(x, range(dist.get_rank(), 100, 2))", True),
        ("data = x[dist.get_rank()::2]", True),
        ("data = x.shard(num_shards=dist.get_world_size(), index=dist.get_rank())", True),
        ("data = x", None),
        ("class Set(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return i\ndata = Set()", False),
        (
            "class Set(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
            "        return i * 2 + dist.get_rank()\ndata = Set()",
            True,
        ),
        (
            "class Set(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        return iter(range(9))\ndata = Set()",
            None,
        ),
        (
            "whole = torch.utils.data.TensorDataset(x[dist.get_rank()::2])\ndata = torch.utils.data.ConcatDataset([whole, whole])",
            True,
        ),
        ("class Set(torch.utils.data.Dataset):\n    pass\ndata, rest = torch.utils.data.random_split(Set(), [3, 4])", False),
    ],
)
def test_whether_data_is_shared_out(lowered: Lowered, source: str, answer: bool | None) -> None:
    program = lowered(f"def f(x):\n    pass\nx = f(1) or open('x').read()\n{source}\nDataLoader(data)\n")
    assert shares_out(program, only(program, LoaderMade).args["dataset"]) is answer


def test_a_data_set_that_ignores_its_index_draws(lowered: Lowered) -> None:
    program = lowered(
        "class Set(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return torch.rand(3)\nDataLoader(Set())\n"
    )
    assert draws_at_random(program, only(program, LoaderMade).args["dataset"])


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("i = torch.randint(9, (1,)).item()\n        return self.rows[i]", True),
        ("if self.trains:\n            i = torch.randint(9, (1,)).item()\n        return self.rows[i]", True),
        ("if not self.trains:\n            i = torch.randint(9, (1,)).item()\n        return self.rows[i]", False),
        ("if self.rows[i].isnan():\n            i = torch.randint(9, (1,)).item()\n        return self.rows[i]", False),
        ("i = i + torch.randint(9, (1,)).item()\n        return self.rows[i]", False),
        ("i = 2\n        return self.rows[i]", False),
    ],
)
def test_a_data_set_that_draws_another_index(lowered: Lowered, body: str, answer: bool) -> None:
    program = lowered(
        "class Set(torch.utils.data.Dataset):\n    def __init__(self, trains):\n        self.trains = trains\n"
        f"        self.rows = torch.zeros(9)\n    def __getitem__(self, i):\n        {body}\nDataLoader(Set(True))\n"
    )
    assert draws_at_random(program, only(program, LoaderMade).args["dataset"]) is answer


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [("", True), (", shuffle=True", True), (", shuffle=False", False), (", shuffle=train", None), (", **options", None)],
)
def test_whether_a_sampler_shuffles(lowered: Lowered, arguments: str, answer: bool | None) -> None:
    program = lowered(f"DistributedSampler(data{arguments})\n")
    assert shuffles(only(program, SamplerMade)) is answer
