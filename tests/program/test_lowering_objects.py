"""Objects and configuration: wraps and aliases, other files, argparse, dataclasses, an exec'd configurator, samplers, saves."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from asked import by_rank, line_of, only

from ddp_audit.program.model import Program
from ddp_audit.program.nodes import (
    Backward,
    Collective,
    Destroy,
    DeviceChoice,
    ForcedDevice,
    Forward,
    LoaderMade,
    SamplerMade,
    Save,
    Seed,
    SetEpoch,
    Wrap,
)
from ddp_audit.program.values import Const, World, defaults_in, evaluate, options, the_object

Lowered = Callable[..., Program]
TWO = [World(0, 2, 2), World(1, 2, 2)]


@pytest.mark.parametrize(
    ("source", "through"),
    [
        ("model = DDP(net)\nmodel(x)", "wrapper"),
        ("model = DDP(net)\nalias = model\nalias(x)", "wrapper"),
        ("model = DDP(net)\nmodel.module(x)", "module"),
        ("model = DDP(net)\nnet(x)", "module"),
        ("model = torch.compile(net)\nmodel = DDP(model)\nmodel(x)", "wrapper"),
        ("model = DDP(net)\nmodel = torch.compile(model)\nmodel(x)", "wrapper"),
        ("model = net\nif args.distributed:\n    model = DDP(net)\nmodel(x)", "wrapper"),
        ("model = DDP(net) if dist.is_initialized() else net\nmodel(x)", "wrapper"),
        ("model = DDP(net)\nraw = model.module if dist.is_initialized() else model\nraw(x)", "module"),
        ("def wrap(m):\n    return DDP(m)\nmodel = wrap(net)\nmodel(x)", "wrapper"),
        ("class T:\n    def __init__(self):\n        self.model = DDP(net)\n    def go(self):\n        self.model(x)\n"
        "T().go()", "wrapper"),
        ("class T:\n    pass\nt = T()\nt.model = DDP(net)\nt.model(x)", "wrapper"),
        ("models = {'a': DDP(net)}\nmodels['a'](x)", "wrapper"),
        ("models = [DDP(net)]\nmodels[0](x)", "wrapper"),
        ("class Mine(DDP):\n    pass\nmodel = Mine(net)\nmodel(x)", "wrapper"),
        ("model = DDP(net)\ndef step(m):\n    return m(x)\nstep(model)", "wrapper"),
        ("model = DDP(net)\ndef unwrap(m):\n    return m.module if hasattr(m, 'module') else m\nunwrap(model)(x)", "module"),
        ("model = net.cuda()\nmodel = DDP(model.to('cpu'))\nmodel.train()\nmodel(x)", "wrapper"),
        ("from torch import nn\nmodel = nn.parallel.DistributedDataParallel(net)\nmodel(x)", "wrapper"),
        ("model = torch.nn.parallel.DistributedDataParallel(module=net)\nmodel(x)", "wrapper"),
        ("model = DDP(net)\nfrom functools import partial\nstep = partial(model)\nstep(x)", "wrapper"),
        ("model = DDP(net)\nmodel.forward(x)", "wrapper"),
        ("model = DDP(net)\nmodel.module.forward(x)", "module"),
    ],
)  # fmt: skip
def test_what_a_forward_goes_through(lowered: Lowered, source: str, through: str) -> None:
    program = lowered(
        "from types import SimpleNamespace\n"
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
        f"args = SimpleNamespace(distributed=os.getpid() > 0)\nnet, x = Net(), torch.ones(2)\n{source}\n"
    )
    forward = only(program, Forward)
    assert forward.through == through
    assert forward.object is not None and forward.object.key in program.wraps()


def test_two_wrappers_are_two(lowered: Lowered) -> None:
    program = lowered("a = DDP(torch.nn.Linear(1, 1))\nb = DDP(torch.nn.Linear(1, 1))\n(a(x) + b(x)).sum().backward()\n")
    backward = only(program, Backward)
    found = [n.object.key for n in program.forwards_of(backward.target) if n.object is not None]
    assert len(set(found)) == 2 == len(program.wraps())


def test_loss_remembers_its_forwards_through_helpers(lowered: Lowered) -> None:
    program = lowered(
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return {'out': x}\n"
        "model = DDP(Net())\n"
        "def criterion(out, y):\n    return ((out['out'] - y) ** 2).mean()\n"
        "def forward_step(batch):\n    return model(batch)\n"
        "loss = criterion(forward_step(torch.ones(1)), torch.ones(1)) / 4\n"
        "total = 0\ntotal += loss\n"
        "scaler = torch.cuda.amp.GradScaler()\n"
        "scaler.scale(total).backward()\n"
    )
    assert [n.kind for n in program.forwards_of(only(program, Backward).target)] == ["forward"]


def test_files_of_the_project(lowered: Lowered) -> None:
    program = lowered(
        "from lib.setup import wrap as put\nimport lib.data as d\nfrom lib import tools\n"
        "model = put(torch.nn.Linear(1, 1))\nd.barrier_all()\ntorch.manual_seed(tools.RANK)\n",
        {
            "lib/__init__.py": "",
            "lib/setup.py": "from torch.nn.parallel import DistributedDataParallel\n"
            "def wrap(m):\n    return DistributedDataParallel(m)\n",
            "lib/data.py": "import torch.distributed as dist\ndef barrier_all():\n    dist.barrier()\n",
            "lib/tools.py": "import os\nRANK = int(os.environ['RANK'])\n",
        },
    )
    assert only(program, Wrap).span.path == "lib/setup.py"
    barrier = only(program, Collective)
    assert (barrier.span.path, [s.path for s in barrier.calls]) == ("lib/data.py", ["train.py"])
    assert by_rank(only(program, Seed).seed, TWO) == [0, 1]
    assert set(program.sources) == {"train.py", "lib/__init__.py", "lib/setup.py", "lib/data.py", "lib/tools.py"}


def test_relative_and_star_imports_in_a_ring(lowered: Lowered) -> None:
    program = lowered(
        "from pkg.a import *\nshow()\n",
        {
            "pkg/__init__.py": "from .a import show\n",
            "pkg/a.py": "from . import b\ndef show():\n    b.go()\n",
            "pkg/b.py": "import torch.distributed as dist\nfrom .a import show\ndef go():\n    dist.barrier()\n",
        },
    )
    assert only(program, Collective).span.path == "pkg/b.py"


def test_argparse_values_are_defaults(lowered: Lowered) -> None:
    text = (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "group = parser.add_argument_group('g')\n"
        "group.add_argument('--batch-size', '-b', type=int, default=8)\n"
        "parser.add_argument('--local_rank', type=int, default=0)\n"
        "args = parser.parse_args()\n"
        "torch.manual_seed(args.batch_size)\n"
        "torch.cuda.set_device(args.local_rank)\n"
    )
    program = lowered(text)
    seed = only(program, Seed).seed
    assert isinstance(seed, Const) and seed.value == 8
    assert [d.name for d in defaults_in(seed)] == ["batch_size"] and next(defaults_in(seed)).open
    assert by_rank(only(program, DeviceChoice).index, TWO) == [0, 1]
    override = SimpleNamespace(value=32, where="--set batch_size=32", path=None, line=None)
    changed = lowered(text, overrides={"batch_size": override})
    value = only(changed, Seed).seed
    assert evaluate(value, TWO[0]) == 32 and not next(defaults_in(value)).open


def test_a_condition_on_a_default_is_open(lowered: Lowered) -> None:
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--wait', action='store_true')\n"
        "args = parser.parse_args()\nif args.wait:\n    dist.barrier()\nelse:\n    dist.all_reduce(torch.ones(1))\n"
    )
    barrier, reduce = lowered(text).of(Collective)
    assert [g.against_default for n in (barrier, reduce) for g in n.guards] == [True, False]
    held = lowered(text, defaults_hold=True)
    assert [n.op for n in held.of(Collective)] == ["all_reduce"]


def test_exec_configurator_makes_globals_defaults(lowered: Lowered) -> None:
    text = (
        "steps = 5\nname = 'x'\nexec(open('configurator.py').read())\n"
        "if steps == 5:\n    dist.barrier()\ntorch.manual_seed(steps)\n"
    )
    program = lowered(text)
    assert program.config["steps"].value == 5 and program.config["steps"].line == line_of(program, "steps = 5")
    assert len(only(program, Collective).guards) == 1
    override = SimpleNamespace(value=7, where="config.py:1", path="config.py", line=1)
    changed = lowered(text, overrides={"steps": override})
    assert not list(changed.of(Collective))
    assert changed.config["steps"].origin == "config-file"


def test_a_constant_without_configurator_decides(lowered: Lowered) -> None:
    program = lowered("steps = 5\nif steps != 5:\n    dist.barrier()\n")
    assert not list(program.of(Collective))


def test_dataclass_config(lowered: Lowered) -> None:
    program = lowered(
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    seed: int = 3\n    other: int = 4\n"
        "config = Config(other=9)\ntorch.manual_seed(config.seed)\ntorch.manual_seed(config.other)\n"
    )
    first, second = (n.seed for n in program.of(Seed))
    assert (evaluate(first, TWO[0]), evaluate(second, TWO[0])) == (3, 9)
    assert [d.name for d in defaults_in(first)] == ["seed"] and not list(defaults_in(second))


def test_sampler_and_loader(lowered: Lowered) -> None:
    program = lowered(
        "class Set(torch.utils.data.Dataset):\n    pass\ndata = Set()\n"
        "sampler = DistributedSampler(data, shuffle=True) if dist.is_initialized() else None\n"
        "loader = DataLoader(data, batch_size=2, sampler=sampler)\n"
        "loader.sampler.set_epoch(1)\n"
    )
    sampler, loader = only(program, SamplerMade).object, only(program, LoaderMade)
    found = the_object(loader.args["sampler"], "sampler")
    target = only(program, SetEpoch).object
    assert sampler is not None and found is not None and target is not None
    assert found.key == sampler.key == target.key


def test_project_sampler_and_subclass(lowered: Lowered) -> None:
    program = lowered(
        "class Mine(torch.utils.data.Sampler):\n    def __init__(self, rank):\n        self.rank = rank\n"
        "class Theirs(DistributedSampler):\n    pass\n"
        "a, b = Mine(dist.get_rank()), Theirs(data)\n"
    )
    assert [n.cls for n in program.of(SamplerMade)] == ["Mine", "Theirs"]


@pytest.mark.parametrize(
    ("source", "sharded"),
    [
        ("data = torch.utils.data.TensorDataset(x)", False),
        ("data = torch.utils.data.Subset(whole, range(dist.get_rank(), 10, dist.get_world_size()))", True),
        ("data, rest = torch.utils.data.random_split(whole, [8, 2])", False),
        ("import torchvision\ndata = torchvision.datasets.MNIST('.', train=True)", False),
        ("class Set(torch.utils.data.Dataset):\n    def __init__(self, r):\n        pass\ndata = Set(r=dist.get_rank())", True),
    ],
)
def test_data_sets(lowered: Lowered, source: str, sharded: bool) -> None:
    program = lowered(f"{source}\nloader = DataLoader(data)\n")
    data = the_object(only(program, LoaderMade).args["dataset"], "dataset")
    assert data is not None and ("rank" in data.taint) is sharded


def test_a_device_option_that_is_overwritten(lowered: Lowered) -> None:
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--device', default='cuda')\n"
        "args = parser.parse_args()\nargs.device = f\"cuda:{os.environ['LOCAL_RANK']}\"\n"
    )
    assert only(lowered(text), ForcedDevice).span.line == line_of(lowered(text), "args.device =")
    assert not list(lowered(text.replace("cuda:{", "cpu:{")).of(ForcedDevice))


@pytest.mark.parametrize(
    "source",
    [
        "class Job:\n    def __enter__(self):\n        dist.init_process_group('gloo')\n        return self\n"
        "    def __exit__(self, *error):\n        dist.destroy_process_group()\nwith Job() as job:\n    dist.barrier()",
        "from contextlib import contextmanager\n@contextmanager\ndef job():\n    dist.init_process_group('gloo')\n    try:\n"
        "        yield\n    finally:\n        dist.destroy_process_group()\nwith job():\n    dist.barrier()",
        "import atexit\ndist.init_process_group('gloo')\natexit.register(dist.destroy_process_group)\ndist.barrier()",
        "import atexit\ndef end():\n    dist.destroy_process_group()\natexit.register(end)\ndist.init_process_group('gloo')",
        "from contextlib import ExitStack\nwith ExitStack() as stack:\n    dist.init_process_group('gloo')\n"
        "    stack.callback(dist.destroy_process_group)\n    dist.barrier()",
    ],
)
def test_what_ends_after_an_exception_too(lowered: Lowered, source: str) -> None:
    assert only(lowered(source + "\n"), Destroy).in_finally


def test_save_knows_the_keys(lowered: Lowered) -> None:
    program = lowered(
        "state = {'model': net.state_dict(), 'step': 3}\nstate['rng'] = torch.get_rng_state()\ntorch.save(state, 'a.pt')\n"
        "torch.save(dict(model=1, optimizer=2), 'b.pt')\ntorch.save(net.state_dict(), 'c.pt')\n"
    )
    assert [n.content for n in program.of(Save)] == [["model", "step", "rng"], ["model", "optimizer"], None]


def test_unused_function_is_lowered_by_itself(lowered: Lowered) -> None:
    program = lowered("def train(model, local_rank):\n    torch.cuda.set_device(local_rank)\n    dist.barrier()\n")
    assert only(program, Collective).guards == ()
    assert by_rank(only(program, DeviceChoice).index, TWO) == [0, 1]


def test_name_main_runs(lowered: Lowered) -> None:
    program = lowered("def main():\n    dist.barrier()\nif __name__ == '__main__':\n    main()\n")
    assert only(program, Collective).guards == ()


def test_alternatives_of_a_value(lowered: Lowered) -> None:
    program = lowered("import sys\nif len(sys.argv) > 2:\n    n = torch.nn.Linear(1, 1)\nelse:\n    n = None\nmodel = DDP(n)\n")
    assert len(list(options(only(program, Wrap).args["module"]))) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = [*a, *b]\n{**c}\nprint(f'{x!r:>{3}}')\n",
        "async def f():\n    async with a as b:\n        await c\n    async for d in e:\n        yield d\n",
        "match x:\n    case {'a': [1, *_]}:\n        dist.barrier()\n    case _:\n        pass\n",
        "class A(metaclass=M):\n    x: int\n    def __call__(self):\n        return self\nA()()()\n",
        "def f(a, /, b=1, *c, d, e=2, **g):\n    return locals()\nf(1, *[2], **{'d': 3})\n",
        "try:\n    pass\nexcept (A, B) as e:\n    raise X from e\nelse:\n    pass\nfinally:\n    pass\n",
        "a = b = c\na, *b = c\n(a[0], b.c), d = 1, 2\nfor a.b, c[d] in e:\n    break\nelse:\n    pass\n",
        "x = lambda *a, **k: (a, k)\nx(1)(2)[3].y\ndel x\nwith a, b as (c, d):\n    pass\n",
        "f = lambda: f()\nf()\nwhile (n := g()):\n    continue\nassert n, 'm'\nglobal q\n",
        "1 // 0\n2 % 0\n2 ** 999\n'a' + 1\n-'a'\n[] < 3\n",
    ],
)
def test_any_python_is_lowered_without_an_error(lowered: Lowered, text: str) -> None:
    lowered(text)
