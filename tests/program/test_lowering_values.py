"""What values are on each rank: where ranks come from, and what survives on the way to a use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asked import by_rank, only

from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Seed
from ddp_audit.program.values import RANK, Const, World, evaluate

Lowered = Callable[..., Program]
TWO_BY_TWO = [World(rank, 4, 2) for rank in range(4)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int(os.environ['RANK'])", [0, 1, 2, 3]),
        ("int(os.environ['LOCAL_RANK'])", [0, 1, 0, 1]),
        ("int(os.environ.get('LOCAL_RANK', -1))", [0, 1, 0, 1]),
        ("int(os.getenv('SLURM_PROCID', '0'))", [0, 1, 2, 3]),
        ("dist.get_rank()", [0, 1, 2, 3]),
        ("dist.get_rank() % torch.cuda.device_count()", [0, 1, 0, 1]),
        ("dist.get_rank() // 2", [0, 0, 1, 1]),
        ("dist.get_rank() * 10 + dist.get_world_size()", [4, 14, 24, 34]),
        ("f'cuda:{dist.get_rank()}'", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("'cuda:' + str(dist.get_rank())", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("'cuda:{}'.format(dist.get_rank())", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("'cuda:%d' % dist.get_rank()", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("torch.device('cuda', dist.get_rank())", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("torch.device(f'cuda:{dist.get_rank()}')", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("dist.get_rank() if dist.is_initialized() else 0", [0, 1, 2, 3]),
        ("1 if dist.get_rank() == 0 else 7", [1, 7, 7, 7]),
        ("min(dist.get_rank(), 2)", [0, 1, 2, 2]),
        ("(dist.get_rank(), 5)[0]", [0, 1, 2, 3]),
        ("{'r': dist.get_rank()}['r']", [0, 1, 2, 3]),
        ("dist.get_rank() == 0 or dist.get_rank() == 2", [True, False, True, False]),
        ("0 < dist.get_rank() < 3", [False, True, True, False]),
        ("dist.get_rank() in (0, 2)", [True, False, True, False]),
        ("not dist.get_rank()", [True, False, False, False]),
        ("[*(3, 4), dist.get_rank()][2]", [0, 1, 2, 3]),
        ("[9, 8][dist.get_rank() % 2]", [9, 8, 9, 8]),
        ("{0: 9, 1: 8}[dist.get_rank() % 2]", [9, 8, 9, 8]),
        ("('%d' % dist.get_rank()) == '1'", [False, True, False, False]),
        ("str(dist.get_rank()) == '0'", [True, False, False, False]),
        ("f'{dist.get_rank()}' == '2'", [False, False, True, False]),
        ("int(os.environ['NODE_RANK']) * 2 + int(os.environ['LOCAL_RANK'])", [0, 1, 2, 3]),
    ],
)
def test_expression_of_the_rank(lowered: Lowered, source: str, expected: list[Any]) -> None:
    program = lowered(f"value = {source}\ntorch.manual_seed(value)\n")
    seed = only(program, Seed)
    assert by_rank(seed.seed, TWO_BY_TWO) == expected
    assert RANK in seed.seed.taint


def test_a_list_that_a_spawned_function_fills_is_no_argument_of_the_call_that_spawns(lowered: Lowered) -> None:
    text = "import torch.multiprocessing as mp\nlist_of = [7]\ndef work(rank, items):\n    items.append(rank)\n"
    program = lowered(text + "mp.spawn(work, ([],), nprocs=2)\nmp.spawn(work, list_of)\ntorch.manual_seed(list_of[-1])\n")
    assert by_rank(only(program, Seed).seed, TWO_BY_TWO) == [7, 7, 7, 7]


def test_a_list_of_its_own_that_a_function_fills_is_not_the_callers(lowered: Lowered) -> None:
    text = "values = [7]\ndef put(items):\n    items = []\n    items.append(dist.get_rank())\nput(values)\ntorch.manual_seed(values[-1])\n"
    assert by_rank(only(lowered(text), Seed).seed, TWO_BY_TWO) == [7, 7, 7, 7]


@pytest.mark.parametrize(
    "source",
    [
        "rank, size = dist.get_rank(), dist.get_world_size()",
        "def where():\n    return dist.get_rank(), dist.get_world_size()\nrank, size = where()",
        "def where():\n    if dist.is_initialized():\n        return dist.get_rank()\n    return 0\nrank = where()",
        "class Job:\n    def __init__(self):\n        self.r = dist.get_rank()\nrank = Job().r",
        "class Job:\n    r = dist.get_rank()\njob = Job()\nrank = job.r",
        "class Job:\n    @property\n    def r(self):\n        return dist.get_rank()\nrank = Job().r",
        "class Job:\n    @staticmethod\n    def r():\n        return dist.get_rank()\nrank = Job.r()",
        "class Base:\n    def __init__(self):\n        self.r = dist.get_rank()\n"
        "class Job(Base):\n    def __init__(self):\n        super().__init__()\nrank = Job().r",
        "ask = lambda: dist.get_rank()\nrank = ask()",
        "from functools import partial\ndef add(a, b):\n    return a + b\nrank = partial(add, 0)(dist.get_rank())",
        "def outer():\n    r = dist.get_rank()\n    def inner():\n        return r\n    return inner\nrank = outer()()",
        "rank = None\ndef setup():\n    global rank\n    rank = dist.get_rank()\nsetup()",
        "state = {}\nstate['r'] = dist.get_rank()\nrank = state['r']",
        "if (r := dist.get_rank()) >= 0:\n    rank = r",
        "def where(*, r=None, **more):\n    return r\nrank = where(**{'r': dist.get_rank()})",
        "values = [dist.get_rank(), 2]\nrank, _ = values",
        "values = []\ndef put(items):\n    items.append(dist.get_rank())\nput(values)\nrank = values[0]",
        "values = []\ndef put(n, *, items):\n    items.extend([n])\nput(dist.get_rank(), items=values)\nrank = values[0]",
        "values = []\ndef put():\n    values.append(dist.get_rank())\nput()\nrank = values[0]",
        "def put(items):\n    items.append(dist.get_rank())\ndef fill(items):\n    put(items)\n"
        "class Job:\n    def __init__(self):\n        self.held = []\njob = Job()\nfill(job.held)\nrank = job.held[0]",
        "rank = int(os.environ['RANK'])\nif 'RANK' not in os.environ:\n    rank = 0",
        "try:\n    rank = int(os.environ['RANK'])\nexcept KeyError:\n    raise SystemExit('start me with torchrun')",
    ],
)
def test_the_rank_on_its_way(lowered: Lowered, source: str) -> None:
    program = lowered(f"{source}\ntorch.manual_seed(rank)\n")
    assert by_rank(only(program, Seed).seed, TWO_BY_TWO) == [0, 1, 2, 3]


def test_spawned_function_gets_the_local_rank(lowered: Lowered) -> None:
    program = lowered(
        "import torch.multiprocessing as mp\n"
        "def worker(gpu, nodes):\n"
        "    torch.manual_seed(gpu + 100 * nodes)\n"
        "def main():\n"
        "    mp.spawn(worker, nprocs=2, args=(3,))\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    assert by_rank(only(program, Seed).seed, TWO_BY_TWO) == [300, 301, 300, 301]


def test_collective_makes_a_value_equal(lowered: Lowered) -> None:
    program = lowered("t = torch.tensor(dist.get_rank())\ndist.broadcast(t, 0)\ntorch.manual_seed(t)\n")
    assert not only(program, Seed).seed.taint


def test_what_a_loop_counts_is_a_what_if(lowered: Lowered) -> None:
    program = lowered("for i in range(10):\n    torch.manual_seed(i * 2 + 1)\n")
    seed = only(program, Seed)
    line, column = seed.loops[0].span.line, len("for i in ")
    assert evaluate(seed.seed, World(0, 2, 2, {f"loop:{line}:{column}": 3})) == 7
    assert seed.loops[0].count == Const(value=10)


def test_a_counter_is_unknown_inside_its_loop(lowered: Lowered) -> None:
    program = lowered(
        "n = 0\nwhile True:\n    torch.manual_seed(n)\n    n += 1\n    if n > 3:\n        break\ntorch.manual_seed(n)\n"
    )
    for seed in program.of(Seed):
        assert not isinstance(seed.seed, Const)


def test_variable_of_both_arms(lowered: Lowered) -> None:
    program = lowered(
        "import sys\nif len(sys.argv) > 1:\n    base = 1\nelse:\n    base = dist.get_rank()\ntorch.manual_seed(base)\n"
    )
    assert RANK in only(program, Seed).seed.taint


def test_clock_and_files_taint(lowered: Lowered) -> None:
    program = lowered("import time\ntorch.manual_seed(int(time.time()))\ntorch.manual_seed(len(os.listdir('.')))\n")
    clock, files = program.of(Seed)
    assert clock.seed.taint == {"clock"}
    assert files.seed.taint == {"files"}


@pytest.mark.parametrize(
    ("read", "expected"), [("len(rest)", 2), ("rest[1]", 8), ("last", 9), ("first", 6), ("len([*rest, 1, *rest])", 5)]
)
def test_an_unpacking_and_a_display_with_a_star(lowered: Lowered, read: str, expected: int) -> None:
    program = lowered(f"first, *rest, last = [6, 7, 8, 9]\ntorch.manual_seed({read})\n")
    assert by_rank(only(program, Seed).seed, TWO_BY_TWO) == [expected] * 4
