"""Which gradients become ready, and in which order: programs that use parameters in orders of their own, run on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_ranks import ForkedRanks, held, predict_script

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""
# Parameters of three sizes, used in the order that the call says.
PARTS = """
class Parts(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(width, 300), nn.Linear(width, 500), nn.Linear(width, 700)
    def forward(self, x, order):
        total = 0
        for name in order:
            total = total + getattr(self, name)(x).sum()
        return total
x = torch.ones(2, 4)
"""
SMALL = ", bucket_cap_mb=0.004"
LATER = "for _ in range(2):\n    model(x, 'abc').backward()\n"

# Each program: the number of ranks and its text.
PROGRAMS: dict[str, tuple[int, str]] = {
    "two forwards, the first one goes back": (
        2,
        f"{PARTS}model = DDP(Parts(){SMALL})\nfirst, second = model(x, 'abc'), model(x, 'cba')\nfirst.backward()\n{LATER}",
    ),
    "two forwards, the second one goes back": (
        2,
        f"{PARTS}model = DDP(Parts(){SMALL})\nfirst, second = model(x, 'abc'), model(x, 'bca')\nsecond.backward()\n{LATER}",
    ),
    "two forwards in one backward": (
        2,
        f"{PARTS}model = DDP(Parts(){SMALL})\n(model(x, 'abc') + model(x, 'cba')).backward()\n{LATER}",
    ),
    "two forwards of other parts in one backward": (
        2,
        f"{PARTS}model = DDP(Parts(){SMALL})\n(model(x, 'ca') + model(x, 'ab')).backward()\n{LATER}",
    ),
    "a module used twice": (2, f"{PARTS}model = DDP(Parts(){SMALL})\nmodel(x, 'abcab').backward()\n{LATER}"),
    "another order on the other rank": (
        2,
        f"{PARTS}model = DDP(Parts(){SMALL})\nfor _ in range(3):\n    model(x, 'cab' if rank else 'abc').backward()\n",
    ),
    "an unused part of a forward is no part of the graph": (
        2,
        f"{PARTS}model = DDP(Parts(){SMALL})\nwith torch.no_grad():\n    model.module(x, 'c')\nmodel(x, 'bac').backward()\n{LATER}",
    ),
    "two wrappers in one backward": (
        2,
        f"{PARTS}model, other = DDP(Parts(){SMALL}), DDP(Parts(){SMALL})\n"
        "for _ in range(3):\n    (model(x, 'abc') + other(x, 'cab')).backward()\n",
    ),
    "two wrappers, the first one called last": (
        2,
        f"{PARTS}model, other = DDP(Parts(){SMALL}), DDP(Parts(), static_graph=True)\n"
        "for _ in range(3):\n    second = other(x, 'cab')\n    (model(x, 'abc') + second).backward()\n",
    ),
    "two wrappers, one after the other": (
        2,
        f"model, head = DDP(nn.Linear(4, 400){SMALL}), DDP(nn.Linear(400, 3), find_unused_parameters=True)\n"
        "for _ in range(3):\n    head(model(torch.ones(2, 4))).sum().backward()\n",
    ),
    "two wrappers of one module's parts": (
        2,
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.body = DDP(nn.Linear(4, 300){SMALL})\n        self.head = DDP(nn.Linear(300, 2))\n"
        "    def forward(self, x):\n        return self.head(self.body(x))\n"
        "net = Net()\nfor _ in range(3):\n    net(torch.ones(2, 4)).sum().backward()\n",
    ),
    "shared weights": (
        2,
        "class Tied(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.embed, self.body, self.head = nn.Embedding(50, 40), nn.Linear(40, 40), nn.Linear(40, 50, bias=False)\n"
        "        self.head.weight = self.embed.weight\n"
        "    def forward(self, ids):\n        return self.head(self.body(self.embed(ids)))\n"
        f"model = DDP(Tied(){SMALL})\nfor _ in range(3):\n    model(torch.zeros(2, 3, dtype=torch.long)).sum().backward()\n",
    ),
    "two outputs, both go back at once": (
        2,
        "class Two(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.a, self.b = nn.Linear(4, 300), nn.Linear(300, 5), nn.Linear(300, 9)\n"
        "    def forward(self, x):\n        h = self.body(x)\n        return self.b(h), self.a(h)\n"
        f"model = DDP(Two(){SMALL})\nfor _ in range(3):\n    one, two = model(torch.ones(2, 4))\n    (one.sum() + two.sum()).backward()\n",
    ),
    "two outputs, one of them goes back": (
        2,
        "class Two(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.a, self.b = nn.Linear(4, 300), nn.Linear(300, 5), nn.Linear(300, 9)\n"
        "    def forward(self, x):\n        h = self.body(x)\n        return self.b(h), self.a(h)\n"
        "model = DDP(Two())\none, two = model(torch.ones(2, 4))\none.sum().backward()\nmodel(torch.ones(2, 4))\n",
    ),
    "two outputs, one of them goes back, unused parameters are looked for": (
        2,
        "class Two(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.a, self.b = nn.Linear(4, 300), nn.Linear(300, 5), nn.Linear(300, 9)\n"
        "    def forward(self, x):\n        h = self.body(x)\n        return self.b(h), self.a(h)\n"
        "model = DDP(Two(), find_unused_parameters=True)\nfor _ in range(3):\n    model(torch.ones(2, 4))[0].sum().backward()\n",
    ),
    "cells in nested modules": (
        2,
        "class Cells(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.embed, self.head = nn.Linear(6, 20), nn.Linear(20, 3)\n"
        "        self.cells = nn.ModuleList([nn.LSTMCell(20, 20), nn.GRUCell(20, 20), nn.RNNCell(20, 20, bias=False)])\n"
        "    def forward(self, x):\n        x = self.embed(x)\n        h = torch.zeros(2, 20)\n        c = torch.zeros(2, 20)\n"
        "        for _ in range(3):\n            h, c = self.cells[0](x, (h, c))\n            h = self.cells[1](x, h)\n"
        "            h = self.cells[2](h)\n        return self.head(h)\n"
        f"model = DDP(Cells(){SMALL})\nfor _ in range(3):\n    model(torch.ones(2, 6)).sum().backward()\n",
    ),
    "a head past the wrapper": (
        2,
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head, self.body = nn.Linear(300, 5), nn.Linear(4, 300)\n"
        "    def forward(self, x):\n        return self.body(x)\n"
        f"model = DDP(Net(){SMALL})\nfor _ in range(3):\n    model.module.head(model(torch.ones(2, 4))).sum().backward()\n",
    ),
    "functions of torch": (
        2,
        "import torch.nn.functional as F\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w, self.b = nn.Parameter(torch.ones(300, 4)), nn.Parameter(torch.ones(300))\n"
        "        self.g, self.s = nn.Parameter(torch.ones(300)), nn.Parameter(torch.ones(300))\n"
        "    def forward(self, x):\n        return F.layer_norm(F.linear(x, self.w, self.b), (300,), self.g, self.s)\n"
        "model = DDP(Net(), bucket_cap_mb=0.0011)\nfor _ in range(3):\n    model(torch.ones(2, 4)).sum().backward()\n",
    ),
    "many parameters of one node": (
        2,
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        for n in range(5):\n            setattr(self, f'p{n}', nn.Parameter(torch.ones(100 * (n + 1))))\n"
        "    def forward(self, x):\n        return torch.cat([self.p0, self.p1, self.p2, self.p3, self.p4]) * x\n"
        "model = DDP(Net(), bucket_cap_mb=0.0009)\nfor _ in range(3):\n    model(torch.ones(1)).sum().backward()\n",
    ),
    "in a sub-group": (
        3,
        f"{PARTS}group = dist.new_group([1, 2])\nif rank:\n    model = DDP(Parts(), process_group=group{SMALL})\n"
        "    for _ in range(3):\n        model(x, 'cab' if rank == 1 else 'abc').backward()\ndist.barrier()\n",
    ),
    "join, the root without inputs": (
        3,
        f"{PARTS}model = DDP(Parts(){SMALL})\nwith model.join():\n    for _ in range(3 if rank == 1 else 0):\n        model(x, 'abc').backward()\n",
    ),
    "join, the root alone": (
        3,
        f"{PARTS}model = DDP(Parts(){SMALL})\nwith model.join():\n    for _ in range(0 if rank else 3):\n        model(x, 'bca').backward()\n",
    ),
    "join on four ranks": (
        4,
        f"{PARTS}model = DDP(Parts(){SMALL})\nwith model.join():\n    for _ in range(rank):\n        model(x, 'bca').backward()\n"
        "model(x, 'abc').backward()\n",
    ),
    "join in a sub-group": (
        4,
        f"{PARTS}group = dist.new_group([1, 2, 3])\nif rank:\n    model = DDP(Parts(), process_group=group{SMALL})\n"
        "    with model.join():\n        for _ in range(rank - 1):\n            model(x, 'cab').backward()\ndist.barrier()\n",
    ),
    "join with unused parameters": (
        3,
        f"{PARTS}model = DDP(Parts(), find_unused_parameters=True{SMALL})\nwith model.join():\n"
        "    for _ in range(2 if rank == 2 else 0):\n        model(x, 'ab').backward()\n",
    ),
    "join with buffers": (
        3,
        "model = DDP(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), bucket_cap_mb=1e-6)\n"
        "with model.join(divide_by_initial_world_size=False):\n    for _ in range(2 if rank == 1 else 0):\n"
        "        model(torch.ones(2, 2)).sum().backward()\n",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_become_ready_as_they_do_in_torch(forked: ForkedRanks, tmp_path: Path, name: str) -> None:
    world_size, body = PROGRAMS[name]
    script = tmp_path / "script.py"
    script.write_text(HEAD + body)
    assert held(forked, script, world_size) is None


def test_join_on_three_ranks_of_which_one_has_inputs(forked: ForkedRanks, tmp_path: Path) -> None:
    """Ranks without inputs bring the order of registration; where the root is one of them, that is the order of all."""
    script = tmp_path / "script.py"
    script.write_text(
        f"{HEAD}m = DDP(nn.Linear(2, 3), bucket_cap_mb=1e-6)\nwith m.join():\n"
        "    for _ in range(2 if dist.get_rank() == 1 else 0):\n        m(torch.ones(1, 2)).sum().backward()\n"
    )
    run = predict_script(script, 3)
    assert run.kind == "completes"
    buckets = [e.numel for e in run.collectives(1) if e.origin == "ddp-bucket"]
    assert buckets == [9, 6, 3]
    assert held(forked, script, 3) is None


STATIC = "m = DDP(nn.Linear(2, 3), static_graph=True)\n"
ASKED = {
    "its own parameters": STATIC + "torch.autograd.grad(m(torch.ones(1, 2)).sum(), m.parameters())\n",
    "its input": STATIC + "x = torch.ones(1, 2, requires_grad=True)\ntorch.autograd.grad(m(x).sum(), x)\n",
    "its output": STATIC + "y = m(torch.ones(1, 2))\ntorch.autograd.grad(y.sum(), y)\n",
    "a penalty": f"{STATIC}x = torch.ones(1, 2, requires_grad=True)\n(g,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)\n"
    "g.pow(2).sum().backward()\n",
    "a parameter that was replaced": f"{STATIC}y = m(torch.ones(1, 2)).sum()\nm.module.weight = nn.Parameter(torch.ones(3, 2))\n"
    "torch.autograd.grad(y, [m.module.weight], allow_unused=True)\n",
    "a parameter that was replaced, and one that was not": f"{STATIC}y = m(torch.ones(1, 2)).sum()\n"
    "m.module.weight = nn.Parameter(torch.ones(3, 2))\ntorch.autograd.grad(y, list(m.parameters()), allow_unused=True)\n",
    "what one wrapper gives another": "a = DDP(nn.Linear(2, 3), static_graph=True)\nb = DDP(nn.Linear(3, 1), static_graph=True)\n"
    "y = a(torch.ones(1, 2))\ntorch.autograd.grad(b(y).sum(), y)\n",
}


@pytest.mark.parametrize("name", ASKED)
def test_a_static_graph_reduces_where_the_way_to_what_is_asked_for_passes_its_output(
    forked: ForkedRanks, tmp_path: Path, name: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + ASKED[name])
    assert held(forked, script, 2) is None
