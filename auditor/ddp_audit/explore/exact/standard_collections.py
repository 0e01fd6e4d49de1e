"""dict, the collections module, and functions that keep lists in order, in an interpreted run."""

from __future__ import annotations

import bisect
import heapq
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls
from ddp_audit.explore.exact.contents import is_unknown, unknown
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, listed, model
from ddp_audit.explore.exact.values import Native, Unknown, error
from ddp_audit.folding import weigh
from ddp_audit.knowledge.functions import given, named

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


class Deque(list[Any]):
    """A deque: a list that can be changed at both ends. `most` is its `maxlen`, None for none."""

    most: int | None = None

    @classmethod
    def of(cls, items: Iterable[Any], most: int | None) -> Deque:
        """The deque with these elements."""
        made = cls(items)
        made.most = most
        made._cut(True)
        return made

    def _cut(self, from_the_left: bool) -> None:
        over = len(self) - self.most if self.most is not None else 0
        if over > 0:
            del self[slice(over) if from_the_left else slice(len(self) - over, None)]

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A method that lists have not, or that minds the length; the length itself."""
        if name == "maxlen":
            return self.most
        known: dict[str, Callable[..., Any]] = {
            "append": lambda value: self._put(it, [value], True), "appendleft": lambda value: self._put(it, [value], False),
            "extend": lambda values: self._put(it, values, True), "extendleft": lambda values: self._put(it, values, False),
            "popleft": lambda: self._taken(0), "pop": lambda: self._taken(-1), "rotate": self._rotate, "clear": self.clear,
            "copy": lambda: Deque.of(self, self.most), "reverse": self.reverse,
        }  # fmt: skip
        if name in known:
            return Native(known[name], name)
        return Native(getattr(self, name), name) if name in ("index", "count", "remove", "insert") else Unknown(name)

    def _put(self, it: Interpreter, values: Any, right: bool) -> None:
        items = listed(it, values)
        for item in [items] if isinstance(items, Unknown) else items:
            it.makes(1)
            self.insert(len(self) if right else 0, item)
            self._cut(right)

    def _taken(self, place: int) -> Any:
        if not self:
            raise error("IndexError", "pop from an empty deque")
        return self.pop(place)

    def _rotate(self, steps: Any = 1) -> None:
        if self and isinstance(steps, int):
            at = -steps % len(self)
            self[:] = [*self[at:], *self[:at]]


@model("builtins.dict", "collections.OrderedDict")
def _dict(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args and isinstance(args[0], Unknown):
        return unknown(args[0])
    if args and isinstance(args[0], dict):
        return OrderedDict(args[0], **kwargs)
    pairs = listed(it, args[0]) if args else []
    made = pairs if isinstance(pairs, Unknown) else it.hashed(dict, pairs)
    return OrderedDict(made, **kwargs) if isinstance(made, dict) else made


@model("collections.defaultdict")
def _defaultdict(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    factory = args[0] if args else None
    made: Any = defaultdict(None if factory is None else lambda: calls.call(it, factory, [], {}))
    given = _dict(it, args[1:], kwargs)
    if isinstance(given, dict):
        made.update(given)
    return made


@model("collections.Counter")
def _counter(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """How often each element comes; a key that is not there counts as 0."""
    counts: Counter[Any] = Counter(kwargs)
    if args and isinstance(args[0], dict):
        counts.update(args[0])
    elif args:
        items = listed(it, args[0])
        if isinstance(items, Unknown) or is_unknown(items):
            return unknown(items, why="counts")
        weigh(items)
        it.makes(len(items))
        counts.update(items)
    return counts


@model("collections.deque")
def _deque(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    items = listed(it, args[0]) if args else []
    most = args[1] if len(args) > 1 else kwargs.get("maxlen")
    if isinstance(items, Unknown) or isinstance(most, Unknown):
        return unknown(items, most, why="a deque")
    return Deque.of(items, most if isinstance(most, int) and 0 <= most < sys.maxsize else None)


def _reorders(name: str, function: Callable[..., Any]) -> Callable[[Any, Args, Kwargs], Any]:
    def run(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        held = given(name, args, kwargs).get(named("reorders")[name])
        if not isinstance(held, list):
            return unknown(*args, *kwargs.values(), why=name)
        it.makes(len(held))
        most = len(held) + named("adds-elements").get(name, 0)  # before the function fails half-way
        try:
            if not is_unknown([held, *args[1:], *kwargs.values()]):
                return function(*args, **kwargs)
        except IndexError as wrong:
            raise error("IndexError", str(wrong)) from None
        except TypeError:
            pass
        held[:] = [unknown(*held, *args[1:], why=name)] * max(0, most)
        return unknown(*held, *args[1:], why=name)

    return run


CALLS |= {
    name: _reorders(name, getattr({"heapq": heapq, "bisect": bisect}[module], last))
    for name in named("reorders")
    for module, _, last in (name.partition("."),)
}

__all__ = ["CALLS", "Deque"]
