"""Which arm of 'is this a distributed run' is taken: the one that sets one up, whatever the setting is called."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asked import only

from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Collective, Init
from ddp_audit.program.values import Const, World, evaluate

Lowered = Callable[..., Program]
OPTIONS = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument('--gas', type=int, default=40)
p.add_argument('--NAME', action='store_true')
p.add_argument('--single', action='store_true')
p.add_argument('--gpus', type=int, default=1)
p.add_argument('--launcher', default='none')
args = p.parse_args()
"""
REST = """\
model = torch.nn.Linear(4, 4)
loss = model(torch.randn(8, 4)).sum()
dist.all_reduce(loss)
"""


def _against(program: Program) -> bool:
    return any(guard.against_default for guard in only(program, Collective).guards)


@pytest.mark.parametrize("name", ["world_size", "ddp_world_size", "n_gpus", "distributed", "parallel", "cuda", "w"])
@pytest.mark.parametrize(
    "check",
    [
        "if args.gas % {}:\n    raise ValueError('gas must divide')\n",
        "if args.gas % {} != 0:\n    print('gas must divide')\n    raise SystemExit(1)\n",
        "if not args.gas % {} == 0:\n    import sys\n    sys.exit(1)\n",
    ],
)
def test_a_check_of_the_options_lowers_nothing_whatever_the_name(lowered: Lowered, name: str, check: str) -> None:
    program = lowered(
        f"dist.init_process_group('gloo')\n{name} = int(os.environ['WORLD_SIZE'])\n"
        + OPTIONS.replace("NAME", "unused")
        + check.format(name)
        + REST
    )
    assert not _against(program)


SETS_UP = {
    "option": "if args.NAME:\n    dist.init_process_group('gloo')\n",
    "kept": "several = args.NAME\nif several:\n    dist.init_process_group('gloo')\n",
    "denied": "if not args.NAME:\n    pass\nelse:\n    dist.init_process_group('gloo')\n",
    "compared": "if args.NAME is True:\n    dist.init_process_group('gloo')\n",
    "helper": "def start():\n    dist.init_process_group('gloo')\nif args.NAME:\n    start()\n",
    "helper of a helper": "def begin():\n    dist.init_process_group('gloo')\ndef start():\n    begin()\nif args.NAME:\n    start()\n",
    "alias": "from torch.distributed import init_process_group as begin\nif args.NAME:\n    begin('gloo')\n",
    "in another file": "from lib import start\nif args.NAME:\n    start()\n",
    "handed on": "def start(on):\n    if on:\n        dist.init_process_group('gloo')\nstart(args.NAME)\nif args.NAME:\n    model = DDP(torch.nn.Linear(1, 1))\n",
}
LIB = {"lib.py": "import torch.distributed as dist\ndef start():\n    dist.init_process_group('gloo')\n"}


@pytest.mark.parametrize("name", ["distributed", "several", "fast"])
@pytest.mark.parametrize("how", SETS_UP)
def test_the_arm_that_sets_up_the_run_is_taken(lowered: Lowered, how: str, name: str) -> None:
    program = lowered(OPTIONS.replace("NAME", name) + SETS_UP[how].replace("NAME", name) + REST, files=LIB)
    assert not any(guard.against_default for guard in only(program, Init).guards)


@pytest.mark.parametrize("name", ["distributed", "several"])
@pytest.mark.parametrize("where", ["before", "after", "in another function"])
def test_the_same_setting_is_asked_alike_elsewhere(lowered: Lowered, where: str, name: str) -> None:
    init = f"if args.{name}:\n    dist.init_process_group('gloo')\n"
    asked = f"if args.{name}:\n    loss = torch.zeros(1)\n    dist.all_reduce(loss)\n"
    inner = f"def reduce(cfg):\n    if cfg.{name}:\n        dist.all_reduce(torch.zeros(1))\nreduce(args)\n"
    text = {"before": asked + init, "after": init + asked, "in another function": init + inner}[where]
    program = lowered(OPTIONS.replace("NAME", name) + text)
    assert not _against(program) and not only(program, Collective).guards


@pytest.mark.parametrize(
    ("decides", "asked", "guarded"),
    [
        ("args.gpus > 1", "args.gpus > 1", False),
        ("args.gpus > 1", "args.gpus >= 2", False),
        ("args.gpus > 1", "args.gpus != 1", False),
        ("args.gpus > 1", "not args.gpus == 1", False),
        ("args.gpus > 1", "args.gpus == 4", True),
        ("args.launcher != 'none'", "args.launcher != 'none'", False),
        ("args.launcher != 'none'", "args.launcher == 'slurm'", True),
        ("not args.single", "not args.single", False),
        ("args.single == False", "not args.single", False),
    ],
)
def test_comparisons_of_a_setting_that_decides(lowered: Lowered, decides: str, asked: str, guarded: bool) -> None:
    program = lowered(
        OPTIONS.replace("NAME", "unused") + f"if {decides}:\n    dist.init_process_group('gloo')\n"
        f"if {asked}:\n    dist.all_reduce(torch.zeros(1))\n"
    )
    assert bool(only(program, Collective).guards) == guarded


@pytest.mark.parametrize("name", ["distributed", "ddp", "multi_gpu", "several"])
def test_a_setting_that_sets_up_nothing_keeps_its_default(lowered: Lowered, name: str) -> None:
    program = lowered(
        OPTIONS.replace("NAME", name) + f"dist.init_process_group('gloo')\nif args.{name}:\n    dist.all_reduce(torch.zeros(1))\n"
    )
    assert _against(program)


def test_a_launch_that_runs_keeps_the_default_of_the_option(lowered: Lowered) -> None:
    text = OPTIONS.replace("NAME", "several") + "if args.several:\n    dist.init_process_group('gloo')\n"
    assert not lowered(text, defaults_hold=True).has(Init)
    assert lowered(text).has(Init)


@pytest.mark.parametrize(
    ("alone", "followed"),
    [
        ("work(0, 1)", False),
        ("work(world=1, place=0)", False),
        ("alias(0, 1)", False),
        ("work(torch.cuda.current_device(), 1)", False),
        ("print('alone')\n    work(place=0, world=args.gpus)", False),
        ("work(args.gpus, 1)", True),
        ("work(int(os.environ['LOCAL_RANK']), 1)", True),
        ("other(0, 1)", True),
    ],
)
@pytest.mark.parametrize("started", ["mp.spawn(work, args=(4,), nprocs=4)", "mp.start_processes(fn=work, args=(4,), nprocs=4)"])
def test_a_worker_that_is_spawned_or_called_for_one_rank(lowered: Lowered, alone: str, followed: bool, started: str) -> None:
    body = "(place, world):\n    dist.init_process_group('gloo', rank=place, world_size=world)\n"
    text = (
        OPTIONS.replace("NAME", "unused")
        + "import torch.multiprocessing as mp\n"
        + "".join(f"def {n}{body}" for n in ("work", "other"))
    )
    text += f"alias = work\nif args.single:\n    {alone}\nelse:\n    {started}\n"
    for arms in (text, text.replace("if args.single", "if args.gpus > 1")):
        worlds = {init.args["world_size"] for init in lowered(arms).of(Init)}
        assert (Const(value=1) in worlds or len(worlds) > 2) == followed
        assert Const(value=4) in worlds


@pytest.mark.parametrize(
    ("guarded", "rank"),
    [
        ("    dist.init_process_group('gloo')\nexcept Exception:\n    os.environ['RANK'] = '0'\n", "int(os.environ['RANK'])"),
        ("    dist.init_process_group('gloo')\n    place = dist.get_rank()\nexcept:\n    place = 0\n", "place"),
        (
            "    begin()\n    place, world = dist.get_rank(), 2\nexcept ValueError as e:\n    print(e)\n    place, world = 0, 1\n",
            "place",
        ),
        (
            "    dist.init_process_group('gloo')\nexcept RuntimeError:\n    single = place = 0\nelse:\n    place = dist.get_rank()\n",
            "place",
        ),
    ],
)
def test_what_a_handler_sets_where_there_is_no_group(lowered: Lowered, guarded: str, rank: str) -> None:
    program = lowered(f"def begin():\n    dist.init_process_group('gloo')\ntry:\n{guarded}if {rank} == 0:\n    dist.barrier()\n")
    assert [evaluate(guard.test, World(1, 2, 2)) for guard in only(program, Collective).guards] == [False]
