"""Numbers of plain Python, as the interpreted run computes them: each expression is held to what CPython makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted

# Each is a number from 1 on, so that it can be the size of a reduction.
EXPRESSIONS = (
    "len(set([1, 1, 2, 5]))",
    "len(frozenset([3, 3]))",
    "len(dict([(1, 2), (1, 3), (4, 5)]))",
    "dict([(1, 2), (1, 3)])[1]",
    "dict({'a': 2}, b=3)['b'] + dict(a=4)['a']",
    "sum(dict({1: 2, 3: 4}).values())",
    "len(range(3, 20, 4)) + range(9, 0, -2)[1]",
    "[n for n in range(5)][-1] + [n for n in range(7, 3, -1)][0]",
    "sum(n * item for n, item in enumerate([3, 4, 5], 2))",
    "sum(n for n, _ in enumerate('abc', start=5))",
    "sum(a * b for a, b in zip([1, 2, 3], (4, 5)))",
    "len(list(zip([1, 2], [3, 4], [5])))",
    "sorted([3, 1, 2])[0] + sorted([3, 1, 2], reverse=True)[0] * 10",
    "sorted(['ccc', 'a', 'bb'], key=len)[1].count('b')",
    "sorted([(2, 1), (1, 9)], key=lambda pair: pair[1], reverse=True)[0][1]",
    "list(reversed([7, 8, 9]))[0]",
    "int('12') + int(3.9) + int('11', 2)",
    "int(float('2.5') * 4)",
    "int(bool([])) + int(bool([0])) + int(bool(''))",
    "len(str(1234)) + len(repr('ab')) + len(format(3.14159, '.2f'))",
    "max(4, 9, 2) + min([8, 3]) + max((1, 5))",
    "max([], default=6) + min((), default=3)",
    "sum([1, 2, 3], 10) + sum(())",
    "int(any([0, 3])) + int(all([1, 0])) + 2 * int(all([])) + int(any([]))",
    "sum(map(lambda n: n * n, [1, 2, 3]))",
    "sum(filter(None, [0, 1, 2])) + sum(filter(lambda n: n > 1, [1, 2, 3]))",
    "next(iter([5, 6])) + next(iter([]), 4)",
    "getattr('abc', 'count')('b') + getattr(1, 'absent', 5)",
    "int(hasattr('a', 'upper')) + 2 * int(hasattr('a', 'absent')) + 3",
    "int(isinstance(3, int)) + 2 * int(isinstance('a', (int, str))) + 4 * int(isinstance(2.0, int))",
    "int(isinstance(True, int)) + 2 * int(isinstance(1, bool)) + 4 * int(isinstance([], (tuple, list)))",
    "[10, 20, 30, 40][slice(1, 3)][1] + [10, 20, 30][::-1][0]",
    "round(3.7) + abs(-4) + divmod(17, 5)[1] + pow(2, 3)",
    "(7 // 2) * 100 + 7 % 4 * 10 + (-7 // 2) + 2 ** 3",
    "(6 & 3) + (6 | 3) * 10 + (6 ^ 3) * 100 + (1 << 4) + (64 >> 3)",
    "1 + (3 < 3) + 2 * (3 <= 3) + 4 * (3 > 3) + 8 * (3 >= 3) + 16 * (2 != 3) + 32 * (2 == 3)",
    "1 + (1 < 2 < 3) + 2 * (3 > 2 > 2) + 4 * (2 in [1, 2]) + 8 * (5 not in {5: 1})",
    "(0 or 3) + (2 and 5) * 10 + (not 0) * 100",
    "[n for row in [[1, 2], [3]] for n in row if n % 2][1]",
    "len({n % 3 for n in range(9)}) + sum({n: n * n for n in range(3)}.values())",
    "'a-b-c'.split('-').index('c') + 'aXbX'.find('X') + len('  a '.strip()) + len('ab'.join(['x', 'y', 'z']))",
    "len('abc'[1:]) + len('abc'[:-1]) + len('abcdef'[1:5:2])",
    "[1, 2, 3].index(3) + [1, 1, 2].count(1) + (4, 5).index(5)",
    "{'a': 3}.get('a', 9) + {'a': 3}.get('b', 9)",
    "len(f'{3:>5}') + len(f'{1.5:.3f}') + len(f'{\"a\"!r}')",
    "[*range(3), *[7]][3] + len({**{'a': 1}, 'a': 2, 'b': 3})",
    "(lambda a, *rest, b=4, **more: a + len(rest) + b + len(more))(1, 2, 3, c=5)",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_number_is_what_python_makes_of_it(expression: str, tmp_path: Path) -> None:
    expected = eval(expression)
    assert expected > 0
    run = predicted(tmp_path, f"dist.all_reduce(torch.ones({expression}))\n")
    assert ([event.numel for event in run.collectives(0)], run.why) == ([expected], "")


def test_a_set_with_an_element_that_is_not_known_is_not_known(tmp_path: Path) -> None:
    for made in ("set([int(os.environ['A']), 1])", "dict([(os.environ['A'], 1), ('b', 2)])"):
        run = predicted(tmp_path, f"dist.all_reduce(torch.ones(len({made})))\n")
        assert [event.numel for event in run.collectives(0)] != [2], made
