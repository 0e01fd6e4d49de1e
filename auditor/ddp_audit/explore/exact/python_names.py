"""Python's builtins and standard library in an interpreted run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, expressions, generators, totals, training
from ddp_audit.explore.exact.contents import is_unknown, unknown
from ddp_audit.explore.exact.iteration import several
from ddp_audit.explore.exact.values import (
    PLAIN,
    Class,
    Cut,
    Error,
    Function,
    Generating,
    Gone,
    Instance,
    Lib,
    Method,
    Module,
    Raised,
    Several,
    Tensor,
    Unknown,
    error,
)
from ddp_audit.folding import TooLarge, weigh

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

Args = list[Any]
Kwargs = dict[str, Any]
CALLS: dict[str, Callable[[Any, Args, Kwargs], Any]] = {}


def model(*names: str) -> Callable[[Callable[[Any, Args, Kwargs], Any]], Callable[[Any, Args, Kwargs], Any]]:
    """Registers what calling a name gives."""

    def register(function: Callable[[Any, Args, Kwargs], Any]) -> Callable[[Any, Args, Kwargs], Any]:
        CALLS.update(dict.fromkeys(names, function))
        return function

    return register


# ---- builtins


@model("builtins.input", "builtins.delattr")
def _nothing(it: Interpreter, args: Args, kwargs: Kwargs) -> None:
    return None


@model("builtins.print")
def _print(it: Interpreter, args: Args, kwargs: Kwargs) -> None:
    for value in args:
        if isinstance(value, Instance):  # of a class of the project, whose text it makes itself
            text_of(it, value, "__str__")


@model("builtins.len")
def _len(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return calls.length(it, args[0])


@model("builtins.range", "tqdm.trange", "tqdm.auto.trange")
def _range(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return range(*args) if args and all(isinstance(a, int) for a in args) else unknown(*args, why="a range")


@dataclass(slots=True, eq=False)
class Counted:
    """`enumerate(x, start)`: stays lazy, so that what a loader or generator brings is not drawn early."""

    inner: Any
    start: Any = 0

    def elements(self, it: Interpreter) -> Iterator[Any]:
        """Pairs of position and element."""
        it.tick()
        for position, element in enumerate(it.iterate(self.inner)):
            yield expressions_add(self.start, position), element

    def length(self, it: Interpreter) -> Any:
        """That of what is counted."""
        return calls.length(it, self.inner)


def expressions_add(start: Any, position: int) -> Any:
    """A position counted from `start`."""
    return start + position if isinstance(start, int) else Unknown("a position")


@model("builtins.enumerate")
def _enumerate(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return Counted(args[0], args[1] if len(args) > 1 else kwargs.get("start", 0))


@dataclass(slots=True, eq=False)
class Zipped:
    """`zip(..)`."""

    parts: list[Any]

    def elements(self, it: Interpreter) -> Iterator[Any]:
        """Tuples, until the shortest ends."""
        it.tick()  # one of these may be in another many times
        for element in zip(*(it.iterate(part) for part in self.parts), strict=False):
            it.makes(len(element))
            yield element


@model("builtins.zip")
def _zip(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return Zipped(args)


def listed(it: Interpreter, value: Any) -> list[Any] | Unknown:
    """The elements of a value as a list; an unknown where nothing of it is known."""
    return unknown(value) if isinstance(value, (Unknown, Lib)) else it.listed(value)


def _sequence(kind: Any) -> Callable[[Any, Args, Kwargs], Any]:
    def made(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if not args:
            return kind()
        items = listed(it, args[0])
        if isinstance(items, Unknown):
            return items
        return it.hashed(kind, items) if kind in (set, frozenset) else kind(items)

    return made


def in_order(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`sorted(..)`; what cannot be compared stays in the order that it has."""
    items = listed(it, args[0]) if args else []
    if isinstance(items, Unknown):
        return items
    key = kwargs.get("key")
    try:
        chosen = None if key is None else [applied(it, key, item) for item in items]
        if is_unknown(items if chosen is None else chosen):
            return [unknown(chosen) for _ in items] if all(isinstance(item, PLAIN) for item in items) else items
        weigh(items if chosen is None else chosen)
        compared = items if chosen is None else chosen
        places = sorted(range(len(items)), key=lambda place: compared[place], reverse=kwargs.get("reverse") is True)
    except TooLarge as reason:
        return it.refused(str(reason), *items)
    except TypeError:
        return items
    return [items[place] for place in places]


def _reversed(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    items = listed(it, args[0])
    return items if isinstance(items, Unknown) else items[::-1]


CALLS |= {
    "builtins.list": _sequence(list), "builtins.tuple": _sequence(tuple), "builtins.set": _sequence(set),
    "builtins.frozenset": _sequence(frozenset), "builtins.sorted": in_order, "builtins.reversed": _reversed,
}  # fmt: skip


def _number(name: str, kind: Any) -> Callable[[Any, Args, Kwargs], Any]:
    def convert(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if not args:
            return kind()
        if isinstance(args[0], (Unknown, Tensor)):
            return totals.copied(args[0], Unknown("a number", args[0].local))
        try:
            return it.fold(name, *args, **kwargs)
        except (ValueError, OverflowError) as wrong:
            raise error("ValueError", str(wrong)) from None
        except TypeError:
            return unknown(*args, why="a number")

    return convert


CALLS |= {"builtins.int": _number("int", int), "builtins.float": _number("float", float)}


@model("builtins.bool")
def _bool(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    known = it.known_truth(args[0]) if args else False
    return unknown(*args) if known is None else known


def text_of(it: Interpreter, value: Any, how: str, spec: str = "") -> Any:
    """A value as text, by the method `how`: one of _TEXTS, or `__ascii__`. `__format__` gets the format `spec`."""
    if isinstance(value, PLAIN):
        try:
            return it.fold("format", value, spec) if how == "__format__" else it.fold(how.strip("_"), value)
        except (ValueError, TypeError, OverflowError):
            return unknown(value, why="a text")
    if isinstance(value, (Instance, Module)) and isinstance(value.cls, Class):
        names = _TEXTS[_TEXTS.index(how) :] if how in _TEXTS else _TEXTS[-1:]
        name = next((name for name in names if isinstance(value.cls.find(name), Function)), None)
        if name == "__format__" or (name is not None and not spec):
            made = calls.call(it, Method(value.cls.find(name), value), [spec] if name == "__format__" else [], {})
            return made if isinstance(made, str) else unknown(made, why="a text")
    return unknown(value, why="a text")


_TEXTS = ("__format__", "__str__", "__repr__")  # each falls back on the next


@model("importlib.import_module", "builtins.__import__")
def _import_module(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return it.module_named(args[0]) if args and isinstance(args[0], str) else unknown(*args, why="a module")


@model("builtins.repr")
def _repr(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return text_of(it, args[0], "__repr__") if args else unknown(why="a text")


@model("builtins.format")
def _formatted(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    spec = args[1] if len(args) > 1 else ""
    return text_of(it, args[0], "__format__", spec) if args and isinstance(spec, str) else unknown(*args, why="a text")


@model("builtins.str")
def _str(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args and isinstance(args[0], Error):
        return args[0].text
    given = (*args, *kwargs.values())
    if len(given) == 1 and not isinstance(given[0], PLAIN):
        return text_of(it, given[0], "__str__")
    if not all(isinstance(one, PLAIN) for one in given):
        return unknown(*given, why="a text")
    try:
        return it.fold("str", *args, **kwargs)
    except (TypeError, ValueError, LookupError):
        return unknown(*given, why="a text")


def _plain(name: str) -> Callable[[Any, Args, Kwargs], Any]:
    def run(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if is_unknown(args) or is_unknown(kwargs):
            return unknown(*args, why="a number")
        try:
            return it.fold(name, *args, **kwargs)
        except Cut:
            raise
        except Exception:
            return Unknown("a number")

    return run


for _name in ("abs", "round", "divmod", "ord", "chr", "pow", "hex", "bytes", "bytearray"):
    CALLS[f"builtins.{_name}"] = _plain(_name)


def _extreme(name: str) -> Callable[[Any, Args, Kwargs], Any]:
    def run(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        items = listed(it, args[0]) if len(args) == 1 else args
        if isinstance(items, Unknown):
            return unknown(items, why="a number")
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            raise error("ValueError", f"{name}() iterable argument is empty")
        key = kwargs.get("key")
        keys = items if key is None else [applied(it, key, item) for item in items]
        if is_unknown(keys):
            return unknown(keys, why="a number")
        try:
            return items[keys.index(it.fold(name, keys))]
        except (TypeError, ValueError):
            return unknown(items, why="a number")

    return run


CALLS |= {"builtins.min": _extreme("min"), "builtins.max": _extreme("max")}


@model("builtins.sum")
def _sum(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    items = listed(it, args[0])
    if isinstance(items, Unknown):
        return unknown(items, why="a sum")
    total: Any = args[1] if len(args) > 1 else kwargs.get("start", 0)
    for item in items:
        total = (
            item
            if isinstance(total, int) and total == 0 and isinstance(item, Tensor)
            else expressions.binary(it, ast.Add(), total, item)
        )
    return total


def _quantifier(decisive: bool) -> Callable[[Any, Args, Kwargs], Any]:
    def run(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        items = listed(it, args[0])
        if isinstance(items, Unknown):
            return items
        answers = [it.known_truth(item) for item in items]
        if decisive in answers:
            return decisive
        return unknown(items) if None in answers else not decisive

    return run


CALLS |= {"builtins.any": _quantifier(True), "builtins.all": _quantifier(False)}


@model("builtins.map")
def _map(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    items = listed(it, args[1]) if len(args) == 2 else Unknown()
    if isinstance(items, Several):
        return several([applied(it, args[0], items.element)], items)
    return items if isinstance(items, Unknown) else [applied(it, args[0], item) for item in items]


def applied(it: Interpreter, function: Any, item: Any) -> Any:
    """What a function gives for one element."""
    it.tick()  # a function of a library does not count itself, and a list may be long
    return calls.call(it, function, [item], {})


@model("builtins.filter")
def _filter(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    items = listed(it, args[1])
    if isinstance(items, Several):
        applied(it, args[0], items.element) if args[0] is not None else None
    if isinstance(items, Unknown):
        return items
    keep = [item if args[0] is None else applied(it, args[0], item) for item in items]
    known = [it.known_truth(wanted) for wanted in keep]
    if None in known and all(isinstance(item, (*PLAIN, Unknown)) for item in items):
        return several(items, unknown(*keep))
    return [item for item, wanted in zip(items, known, strict=True) if wanted is not False]


@model("builtins.iter")
def _iter(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:

    return args[0] if isinstance(args[0], training.Stream) else training.Stream(it.iterate(args[0]))


@model("builtins.next")
def _next(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:

    def end() -> Any:
        if len(args) > 1:
            return args[1]
        raise error("StopIteration")

    source = args[0]
    if isinstance(source, training.Stream):
        return source.next(end)
    if isinstance(source, Instance) and isinstance(source.cls.find("__next__"), Function):
        return calls.call(it, Method(source.cls.find("__next__"), source), [], {})
    if isinstance(source, Unknown):
        return unknown(source, why="an element")
    if isinstance(source, Generating):
        element = generators.running_of(it, source).next()
        return end() if element is generators.END else element
    for element in it.iterate(source):
        return element
    return end()


@model("builtins.slice")
def _slice(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return slice(*args)


@model("sys.exit", "builtins.exit", "builtins.quit")
def leave(it: Interpreter, args: Args, kwargs: Kwargs) -> None:
    raise Raised(Error("SystemExit", tuple(args[:1])))


@model("os._exit")
def _leave_at_once(it: Interpreter, args: Args, kwargs: Kwargs) -> None:
    raise Gone(args[0] if args else kwargs.get("status"))


def unknown_builtin(it: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A builtin without a model: an exception's class, or something that is not known."""
    if name.endswith(("Error", "Exception", "Exit", "Interrupt", "Iteration", "Warning")):
        return Error(name, tuple(args))
    if name == "object":
        return Unknown("an object")
    return unknown(*args, *kwargs.values(), why=name)


__all__ = ["CALLS", "Args", "Kwargs", "model", "unknown_builtin"]
