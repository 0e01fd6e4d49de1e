"""Python's standard library in an interpreted run: environment, argparse, contextlib, functools, itertools and their like."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, expressions, layer_table, training
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, leave, model
from ddp_audit.explore.exact.state import OpenOption
from ddp_audit.explore.exact.values import (
    MISSING,
    PLAIN,
    Context,
    Function,
    Generating,
    Lib,
    Module,
    Native,
    Opened,
    Unknown,
    is_local,
    unknown,
)

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


_LONG_NUMBER = 20  # digits


class Environment:
    """os.environ as torchrun leaves it: what it does not set is taken as not set, and unknown where it is demanded."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A method of os.environ."""
        if name in ("get", "setdefault", "pop"):
            return Native(lambda key, default=None: self.values.get(key, default) if isinstance(key, str) else Unknown())
        if name == "copy":
            return Native(lambda: self)
        return Unknown(name)

    def keys_known(self) -> dict[str, str]:
        """The variables that are set."""
        return self.values

    def __getitem__(self, key: Any) -> Any:
        return self.values.get(key, Unknown(f"the environment variable {key}")) if isinstance(key, str) else Unknown()

    def set_key(self, key: Any, value: Any) -> None:
        """`os.environ[key] = value`."""
        if isinstance(key, str) and isinstance(value, str):
            self.values[key] = value


@model("random.Random")
def _random(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A generator with a seed of its own draws what that seed says."""
    return random.Random(args[0]) if args and isinstance(args[0], (int, str)) else Unknown("a generator", True)


@model("functools.partial")
def _partial(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function, given, named = args[0], args[1:], dict(kwargs)
    return Native(lambda *more, **extra: calls.call(it, function, [*given, *more], {**named, **extra}))


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


@model("atexit.register")
def _at_exit(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    it.at_exit.append((args[0], args[1:], kwargs))
    return args[0]


@model("contextlib.nullcontext")
def _null(it: Interpreter, args: Args, kwargs: Kwargs) -> Context:
    return Context(value=args[0] if args else None)


@model("contextlib.suppress")
def _suppress(it: Interpreter, args: Args, kwargs: Kwargs) -> Context:
    return Context(suppressed=tuple(args))


@dataclass(slots=True, eq=False)
class ExitStack:
    """contextlib.ExitStack: contexts entered inside hold until its block ends."""

    entered: list[Context] = field(default_factory=list)
    callbacks: list[tuple[Any, Args, Kwargs]] = field(default_factory=list)

    def attribute(self, it: Interpreter, name: str) -> Any:
        """enter_context, callback and close."""
        if name == "enter_context":
            return Native(lambda context: self._enter(it, context))
        if name == "callback":
            return Native(lambda function, *args, **kwargs: self.callbacks.append((function, list(args), kwargs)))
        return Native(lambda *args: None)

    def _enter(self, it: Interpreter, context: Any) -> Any:
        if not isinstance(context, Context):
            return context
        before = it.grad

        def restore() -> None:
            it.grad = before
            if context.leave is not None:
                context.leave()

        self.entered.append(Context(leave=restore))
        if context.grad is not None:
            it.grad = context.grad
        return context.value if context.enter is None else context.enter()

    def close(self, it: Interpreter) -> None:
        """Leaves everything that was entered, the last first."""
        for function, args, kwargs in reversed(self.callbacks):
            calls.call(it, function, args, kwargs)
        for context in reversed(self.entered):
            if context.leave is not None:
                context.leave()


@model("contextlib.ExitStack")
def _exit_stack(it: Interpreter, args: Args, kwargs: Kwargs) -> Context:
    stack = ExitStack()
    return Context(value=stack, leave=lambda: stack.close(it))


@model("os.environ.get", "os.getenv")
def _getenv(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return it.environment.get(args[0], args[1] if len(args) > 1 else kwargs.get("default")) if args else Unknown()


@model("os.path.exists")
def _exists(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _stood_at(it, args, ("file", "folder"))


@model("builtins.open")
def _open(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    reads = isinstance(mode, str) and mode.startswith("r") and "+" not in mode
    if reads and _stood_at(it, args, ("file",)) is True:
        return Opened("a file", path=args[0])
    return Unknown("a file", is_local(*args))


@model("pickle.load")
def _unpickled(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """The plain values of a pickle of the machine, which all ranks are taken to read alike."""
    if args and isinstance(args[0], Opened) and it.machine.unpickle is not None:
        try:
            return it.machine.unpickle(args[0].path)
        except (OSError, ValueError) as error:
            it.note(f"{args[0].path} is not read: {error}")
    return Unknown("what a file holds", is_local(*args))


@model("os.path.isfile")
def _isfile(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _stood_at(it, args, ("file",))


@model("os.path.isdir")
def _isdir(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _stood_at(it, args, ("folder",))


def _stood_at(it: Interpreter, args: Args, kinds: tuple[str, ...]) -> Any:
    """Whether something of these kinds is at a path, where the machine is known; a file may be there on some ranks alone."""
    known = it.machine.kind_at(args[0]) if it.machine.kind_at is not None and args and isinstance(args[0], str) else None
    return Unknown("whether a file is there", True) if known is None else known in kinds


@model("packaging.version.parse", "packaging.version.Version", "distutils.version.LooseVersion", "pkg_resources.parse_version")
def _version(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A version as the tuple of its numbers, which compares as versions do; the last zeros say nothing."""
    parts = str(args[0]).partition("+")[0].split(".") if args and isinstance(args[0], str) else []
    if not parts or not all(part.isdecimal() and len(part) < _LONG_NUMBER for part in parts):
        return unknown(*args, why="a version")
    numbers = [int(part) for part in parts]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


@model("os.path.join")
def _join(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args or not all(isinstance(a, str) for a in args):
        return Unknown("a path")
    joined = it.fold(".join", "/", args)  # where that is small, so is the path
    return posixpath.join(*args) if isinstance(joined, str) else joined


@model("os.cpu_count", "os.getpid")
def _machine(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return Unknown("a number")


@model("copy.deepcopy", "copy.copy")
def _copy(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:

    value = args[0] if args else Unknown()
    copied = value.module if isinstance(value, training.Wrapper) else value
    for _ in copied.walk() if isinstance(copied, Module) else ():
        it.tick()
    if isinstance(value, Module):
        return layer_table.clone(value)
    if isinstance(value, training.Wrapper) and isinstance(value.module, Module):
        return layer_table.clone(value.module)
    if isinstance(value, (list, dict)) and all(
        isinstance(v, PLAIN) for v in (value.values() if isinstance(value, dict) else value)
    ):
        return value.copy()
    return value


# ---- argparse


@dataclass(slots=True, eq=False)
class Namespace:
    """The parsed options."""

    attrs: dict[str, Any]

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An option."""
        return self.attrs.get(name, Unknown(name))

    def set_attribute(self, it: Interpreter, name: str, value: Any) -> None:
        """`args.name = value`."""
        self.attrs[name] = value


@model("argparse.Namespace", "types.SimpleNamespace")
def _namespace(it: Interpreter, args: Args, kwargs: Kwargs) -> Namespace:
    return Namespace(dict(kwargs))


@dataclass(slots=True, eq=False)
class Parser:
    """argparse.ArgumentParser: defaults, and what the job sets instead."""

    options: dict[str, Any]

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A method of a parser."""
        match name:
            case "add_argument":
                return Native(lambda *flags, **kwargs: self._add(it, flags, kwargs))
            case "parse_args":
                return Native(lambda *args, **kwargs: Namespace(dict(self.options)))
            case "parse_known_args":
                return Native(lambda *args, **kwargs: (Namespace(dict(self.options)), []))
            case "add_argument_group" | "add_mutually_exclusive_group" | "add_parser":
                return Native(lambda *args, **kwargs: self)
            case "set_defaults":
                return Native(lambda **kwargs: self.options.update(kwargs))
            case "error":
                return Native(lambda *args: leave(it, [2], {}))
        return Native(lambda *args, **kwargs: Unknown(name))

    def _add(self, it: Interpreter, flags: tuple[Any, ...], kwargs: Kwargs) -> None:

        words = [f for f in flags if isinstance(f, str)]
        if not words:
            return
        long = next((f for f in words if f.startswith("--")), words[0])
        name = str(kwargs["dest"]) if isinstance(kwargs.get("dest"), str) else long.lstrip("-").replace("-", "_")
        action, default = kwargs.get("action"), kwargs.get("default", MISSING)
        if default is MISSING:
            default = {"store_true": False, "store_false": True}.get(action) if isinstance(action, str) else None
        kind = kwargs.get("type")
        if name in it.overrides:
            default = expressions.plain_override(it.overrides[name])
            if isinstance(default, (int, float, bool)) and isinstance(kind, Lib) and kind.name == "builtins.str":
                default = str(default)
        if isinstance(default, str) or (isinstance(default, int) and isinstance(kind, Lib) and kind.name == "builtins.float"):
            default = default if kind is None else calls.call(it, kind, [default], {})
        elif not long.startswith("-") and default is None and name not in it.overrides:
            default = Unknown(f"the argument {name}")
        self.options[name] = default
        if name not in it.overrides:
            choices = kwargs.get("choices")
            listed = tuple(c for c in choices if isinstance(c, PLAIN)) if isinstance(choices, (list, tuple)) else ()
            named = kind.name.rsplit(".", 1)[-1] if isinstance(kind, Lib) else ""
            it.options[name] = OpenOption(default, listed, action == "store_true" or named == "bool", named == "int")


@model("argparse.ArgumentParser", "configargparse.ArgumentParser")
def _parser(it: Interpreter, args: Args, kwargs: Kwargs) -> Parser:
    parents = kwargs.get("parents")
    options: dict[str, Any] = {}
    for parent in parents if isinstance(parents, list) else ():
        if isinstance(parent, Parser):
            options |= parent.options
    return Parser(options)


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
    from itertools import islice

    bounds = args[1:]
    if any(not isinstance(b, (int, type(None))) or (b or 0) < 0 for b in bounds) or not bounds:
        return unknown(*args)
    return training.Stream(islice(it.iterate(args[0]), *bounds))


@model("itertools.count")
def _count(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return range(args[0] if args and isinstance(args[0], int) else 0, 10**9)


@model("itertools.chain")
def _chain(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    parts = [part if isinstance(part, Unknown) else it.listed(part) for part in args]
    return [element for part in parts for element in ([part] if isinstance(part, Unknown) else part)]


@model("itertools.product")
def _product(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    from itertools import islice, product

    parts = [part if isinstance(part, Unknown) else it.listed(part) for part in args]
    known = [part for part in parts if not isinstance(part, Unknown)]
    return list(islice(product(*known), 10_000)) if len(known) == len(parts) and not kwargs else unknown(*args)


__all__ = ["CALLS", "Environment", "Namespace", "Parser"]
