"""The iterations of a long loop at which conditions on its index turn, computed from the conditions.

A condition such as `step % 40000 == 39999` holds in an iteration that nobody would find by trying the first ones. Its numbers name
the iterations at which its answer can change; no condition is taken as true there, its caller asks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import gcd

from ddp_audit.program.values import Const, Expr, Items, Value, World, evaluate, loop_leaves

_MOST = 2_000  # iterations that are named
_TURNS_OF_A_REMAINDER = 48  # of which another condition may let one through
_COMPARED = frozenset({"==", "!=", "<", "<=", ">", ">="})


def turning_points(tests: Sequence[Value], leaf: str, count: int, world: World) -> list[int]:
    """Return iterations from 0 to `count` - 1, in order, at which one of the conditions on the index `leaf` may turn."""
    parts = [part for test in tests for part in _parts(test) if leaf in loop_leaves(part)]
    constants = {value for test in tests for value in _constants(test, leaf, world)} | {0}
    starts = {0}
    steps: set[tuple[int, int]] = set()  # (an iteration, after how many it comes again)
    for part in parts:
        if part.op in _COMPARED:
            left, right = part.args[:2]
            starts |= _crossings([Expr(op="-", args=(left, right))], [0], leaf, world)
        divisor = evaluate(part.args[1], world) if part.op in ("%", "//") else None
        if type(divisor) is not int or divisor <= 0:
            continue
        if part.op == "//":
            starts |= _crossings(part.args[:1], [value * divisor for value in constants], leaf, world)
            steps.add((0, divisor))
        else:
            line = _line(part.args[0], leaf, world)
            remainders = {value % divisor for value in constants}
            steps |= {step for remainder in sorted(remainders) for step in _again(line, remainder, divisor)}
    points = {at + shift for at in starts for shift in (-1, 0, 1)}
    for first, period in sorted(steps):
        for start in sorted(starts):
            begin = first + max(0, -((first - start) // period)) * period
            points.update(range(begin, begin + period * _TURNS_OF_A_REMAINDER, period))
    return sorted(point for point in points if 0 <= point < count)[:_MOST]


def _again(line: tuple[int, int] | None, remainder: int, divisor: int) -> Iterator[tuple[int, int]]:
    """The first iteration at which `slope * i + offset` leaves a remainder, and after how many it does so again."""
    if line is None:
        return
    slope, offset = line
    shared = gcd(slope, divisor)
    if (remainder - offset) % shared:
        return
    period = divisor // shared
    yield (remainder - offset) // shared * pow(slope // shared, -1, period) % period, period


def _crossings(values: Iterable[Value], targets: Iterable[int], leaf: str, world: World) -> set[int]:
    """The iterations at which a value that grows evenly passes one of some numbers."""
    targets = list(targets)
    lines = [line for value in values if (line := _line(value, leaf, world)) is not None and line[0]]
    return {(target - offset) // slope + shift for slope, offset in lines for target in targets for shift in (0, 1)}


def _line(value: Value, leaf: str, world: World) -> tuple[int, int] | None:
    """Slope and offset of a value that grows evenly with the index; None for another one."""
    first, second, third, far = (
        evaluate(value, World(world.rank, world.world_size, world.local_world_size, {**world.atoms, leaf: index}))
        for index in (0, 1, 2, 1_000)
    )
    if not (type(first) is type(second) is type(third) is type(far) is int):
        return None
    slope = second - first
    return (slope, first) if third == first + 2 * slope and far == first + 1_000 * slope else None


def _parts(value: Value) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
        for arg in value.args:
            yield from _parts(arg)


def _constants(value: Value, leaf: str, world: World) -> Iterator[int]:
    """The whole numbers in an expression that do not rest on the index."""
    inner = value.args if isinstance(value, Expr) else value.items if isinstance(value, Items) else ()
    for part in inner:
        if leaf in loop_leaves(part):
            yield from _constants(part, leaf, world)
        else:
            number = part.value if isinstance(part, Const) else evaluate(part, world)
            for one in number if isinstance(number, tuple) else (number,):
                if type(one) is int:
                    yield one


__all__ = ["turning_points"]
