"""What calls make of lists and dicts, and who comes past a raise that a try statement catches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asked import by_rank, only, who

from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Collective, Seed
from ddp_audit.program.values import World

Lowered = Callable[..., Program]
HEAD = "import os, itertools\nimport torch\nimport torch.distributed as dist\nrank, size = dist.get_rank(), dist.get_world_size()\n"
JOB = [World(rank, 4, 4) for rank in range(4)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("dict(zip(['a', 'b'], [rank, size])).get('a')", [0, 1, 2, 3]),
        ("dict(zip(('a', 'b'), (rank, size)))['b']", [4, 4, 4, 4]),
        ("dict([('a', rank), ('b', 7)])['a']", [0, 1, 2, 3]),
        ("dict(zip(['a'], [1]), b=rank)['b']", [0, 1, 2, 3]),
        ("{**dict(zip(['a'], [1])), 'a': rank}.get('a')", [0, 1, 2, 3]),
        ("{'a': 1, 'a': rank}['a']", [0, 1, 2, 3]),
        ("list(itertools.chain([size], [rank, 1]))[1]", [0, 1, 2, 3]),
        ("len(list(itertools.chain([size, 1], (rank, 1))))", [4, 4, 4, 4]),
        ("list(reversed([size, rank]))[0]", [0, 1, 2, 3]),
        ("len(sorted([size, rank, 3]))", [3, 3, 3, 3]),
        ("next(iter([rank, size]))", [0, 1, 2, 3]),
        ("next(iter([]), rank)", [0, 1, 2, 3]),
        ("next(iter((5, rank)), size)", [5, 5, 5, 5]),
    ],
)
def test_a_value_out_of_a_list_or_dict_is_known(lowered: Lowered, value: str, expected: list[int]) -> None:
    assert by_rank(only(lowered(f"torch.manual_seed({value})\n", head=HEAD), Seed).seed, JOB) == expected


CLASS = "class Box:\n    def __init__(self, n):\n        self.n = n\n    def __len__(self):\n        return self.n % 4\n"


@pytest.mark.parametrize(
    ("value", "differs"),
    [
        ("len(Box(rank))", True),
        ("len(Box(size))", False),
        ("next(iter([i for i in [1, size] if i > rank]), 0)", True),
        ("next(iter([i for i in [1, size] if i > 2]), 0)", False),
        ("next(iter(range(rank)), size)", True),
        ("total(size, *[i for i in [size, 3] if i > rank])", True),
        ("total(size, *[i for i in [size, 3] if i > 1])", False),
        ("len([*range(rank), size])", True),
        ("len([*range(size), size])", False),
        ("rest(size, *range(rank))", True),
    ],
)
def test_a_number_of_elements_is_a_reason_to_differ(lowered: Lowered, value: str, differs: bool) -> None:
    helpers = "def total(first, *more):\n    return first + sum(more)\ndef rest(*all):\n    one, *others = [1, *all]\n    return len(others)\n"
    program = lowered(f"{CLASS}{helpers}torch.manual_seed({value})\n", head=HEAD)
    assert bool(only(program, Seed).seed.taint) is differs


BASE = "class Base:\n    limit = 2\n    def __init__(self):\n        self.first = dist.get_rank() < self.limit\n"


def test_a_method_of_a_base_class_sees_the_whole_object(lowered: Lowered) -> None:
    own = "class Own(Base):\n    limit = 1\n    def __init__(self):\n        super().__init__()\nif Own().first:\n    dist.barrier()\n"
    assert who(only(lowered(BASE + own), Collective)) == [True, False, False, False]


RAISES = "try:\n    if dist.get_rank():\n        raise ValueError\n"


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("except ValueError:\n    pass\ndist.barrier()", [True] * 4),
        ("except ValueError:\n    raise\ndist.barrier()", [True, False, False, False]),
        ("except ValueError:\n    print(1)\nexcept KeyError:\n    raise\ndist.barrier()", [True] * 4),
        ("    dist.barrier()\nexcept ValueError:\n    pass", [True, False, False, False]),
        ("except ValueError:\n    pass\nelse:\n    dist.barrier()", [True, False, False, False]),
        ("finally:\n    dist.barrier()", [True] * 4),
        ("finally:\n    print(1)\ndist.barrier()", [True, False, False, False]),
    ],
)
def test_who_raises_comes_to_the_handlers_and_on(lowered: Lowered, rest: str, expected: list[bool]) -> None:
    assert who(only(lowered(f"{RAISES}{rest}\n"), Collective)) == expected


def test_who_returns_out_of_a_try_does_not_go_on(lowered: Lowered) -> None:
    text = "def main():\n    try:\n        if dist.get_rank():\n            return\n    except ValueError:\n        pass\n    dist.barrier()\nmain()\n"
    assert who(only(lowered(text), Collective)) == [True, False, False, False]
