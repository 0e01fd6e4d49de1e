"""itertools and functools in an interpreted run. What makes elements stays lazy, so that nothing is drawn or sent early."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, expressions, training
from ddp_audit.explore.exact.contents import is_unknown, unknown
from ddp_audit.explore.exact.iteration import several
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, model
from ddp_audit.explore.exact.values import Function, Generating, Native, Unknown, error

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_MOST_LISTED = 10_000  # combinations that are made at once


@model("functools.partial")
def _partial(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function, given, named = args[0], args[1:], dict(kwargs)
    return Native(lambda *more, **extra: calls.call(it, function, [*given, *more], {**named, **extra}), inner=function)


@model("functools.wraps", "functools.update_wrapper")
def _identity(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return Native(lambda function, *rest: function)


@model("functools.cache", "functools.lru_cache")
def _cached(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`@cache` and `@lru_cache`, and `@lru_cache(maxsize=n)`, whose limit is taken to be enough."""

    def memoised(function: Any) -> Any:
        if isinstance(function, Function):
            function.kept = {}
        return function

    return memoised(args[0]) if args and isinstance(args[0], Function) else Native(memoised)


@model("functools.reduce")
def _reduce(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    elements = it.iterate(args[1])
    total = args[2] if len(args) > 2 else next(elements, kwargs.get("initial", _NOTHING))
    if total is _NOTHING:
        raise error("TypeError", "reduce() of empty iterable with no initial value")
    for element in elements:
        it.tick()
        total = calls.call(it, args[0], [total, element], {})
    return total


_NOTHING = object()


@model("itertools.cycle")
def _cycle(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:

    def again() -> Iterator[Any]:
        first: list[Any] = []  # which come again where what is asked has no second time
        for element in it.iterate(args[0]):
            it.tick()
            first.append(element)
            yield element
        while first:
            for element in first if isinstance(args[0], (Generating, training.Stream)) else it.iterate(args[0]):
                it.tick()
                yield element

    return training.Stream(again())


@model("itertools.islice")
def _islice(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    bounds = args[1:]
    if any(not isinstance(b, (int, type(None))) or (b or 0) < 0 for b in bounds) or not bounds:
        return unknown(*args)
    return training.Stream(itertools.islice(it.iterate(args[0]), *bounds))


@model("itertools.count")
def _count(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    start = args[0] if args else kwargs.get("start", 0)
    step = args[1] if len(args) > 1 else kwargs.get("step", 1)
    if not isinstance(start, int) or not isinstance(step, int) or not step:
        return unknown(*args, *kwargs.values())
    return range(start, start + step * 10**9, step)


@model("itertools.chain")
def _chain(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    parts = [part if isinstance(part, Unknown) else it.listed(part) for part in args]
    elements = [element for part in parts if not isinstance(part, Unknown) for element in part]
    lost = [part for part in parts if isinstance(part, Unknown)]
    return several(elements, *lost) if lost else elements


@model("itertools.product")
def _product(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    parts = [part if isinstance(part, Unknown) else it.listed(part) for part in args]
    known = [part for part in parts if not isinstance(part, Unknown)]
    return (
        list(itertools.islice(itertools.product(*known), _MOST_LISTED))
        if len(known) == len(parts) and not kwargs
        else unknown(*args)
    )


@model("itertools.chain.from_iterable")
def _flattened(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return training.Stream(element for part in it.iterate(args[0]) for element in it.iterate(part))


@model("itertools.accumulate")
def _accumulate(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function = args[1] if len(args) > 1 else kwargs.get("func")

    def sums() -> Iterator[Any]:
        total = kwargs.get("initial")
        empty = total is None
        if not empty:
            yield total
        for element in it.iterate(args[0]):
            it.tick()
            if empty:
                total, empty = element, False
            elif function is None:
                total = expressions.binary(it, ast.Add(), total, element)
            else:
                total = calls.call(it, function, [total, element], {})
            yield total

    return training.Stream(sums())


@model("itertools.repeat")
def _repeat(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    times = args[1] if len(args) > 1 else kwargs.get("times")
    if times is not None and not isinstance(times, int):
        return unknown(*args, *kwargs.values())

    def same() -> Iterator[Any]:
        for _ in itertools.count() if times is None else range(times):
            it.tick()
            yield args[0]

    return training.Stream(same())


@model("itertools.starmap")
def _starmap(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    def applied() -> Iterator[Any]:
        for given in it.iterate(args[1]):
            it.tick()
            listed = it.listed(given)
            yield unknown(given) if isinstance(listed, Unknown) else calls.call(it, args[0], listed, {})

    return training.Stream(applied())


@model("itertools.zip_longest")
def _zip_longest(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    def tuples() -> Iterator[Any]:
        for element in itertools.zip_longest(*(it.iterate(part) for part in args), fillvalue=kwargs.get("fillvalue")):
            it.makes(len(element))
            it.tick()
            yield element

    return training.Stream(tuples())


@model("itertools.pairwise")
def _pairwise(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return training.Stream(itertools.pairwise(it.iterate(args[0])))


def _while(keep: bool) -> Callable[[Any, Args, Kwargs], Any]:
    def run(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        def chosen() -> Iterator[Any]:
            begun = keep
            for element in it.iterate(args[1]):
                it.tick()
                holds = None if begun and not keep else it.known_truth(calls.call(it, args[0], [element], {}))
                if keep and holds is False:
                    return
                begun = begun or holds is not True
                if begun:
                    yield element

        return training.Stream(chosen())

    return run


CALLS |= {"itertools.takewhile": _while(True), "itertools.dropwhile": _while(False)}


def _chosen(name: str) -> Callable[[Any, Args, Kwargs], Any]:
    function: Any = getattr(itertools, name)

    def run(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        items, rest = it.listed(args[0]), [*args[1:], *kwargs.values()]
        if isinstance(items, Unknown) or is_unknown(rest) or not all(isinstance(n, int) and 0 <= n <= len(items) for n in rest):
            return unknown(items, *rest)
        made = list(itertools.islice(function(items, *rest), _MOST_LISTED + 1))
        it.makes(sum(map(len, made)))
        return unknown(items) if len(made) > _MOST_LISTED else made

    return run


for _name in ("permutations", "combinations", "combinations_with_replacement"):
    CALLS[f"itertools.{_name}"] = _chosen(_name)


@model("itertools.groupby")
def _groupby(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function = args[1] if len(args) > 1 else kwargs.get("key")
    items = it.listed(args[0])
    if isinstance(items, Unknown):
        return items
    keys = [item if function is None else calls.call(it, function, [item], {}) for item in items]
    if is_unknown(keys):
        return unknown(keys)
    groups: list[tuple[Any, list[Any]]] = []
    for key, item in zip(keys, items, strict=True):
        if not groups or it.known_truth(expressions.compare(it, ast.Eq(), groups[-1][0], key)) is not True:
            groups.append((key, []))
        groups[-1][1].append(item)
    return groups


__all__ = ["CALLS"]
