"""Python's standard library in an interpreted run: environment, argparse, contextlib, functools, itertools and their like."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, expressions, generators
from ddp_audit.explore.exact.contents import is_local, unknown
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, leave, model
from ddp_audit.explore.exact.state import OpenOption
from ddp_audit.explore.exact.values import (
    MISSING,
    PLAIN,
    Class,
    Context,
    Error,
    Function,
    Generating,
    Instance,
    Lib,
    Method,
    Module,
    Native,
    Opened,
    Raised,
    Scope,
    Unknown,
)
from ddp_audit.program.names import ENVIRONMENT
from ddp_audit.program.worlds import World

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


_LONG_NUMBER = 20  # digits


class Environment:
    """os.environ as torchrun leaves it: what it does not set is taken as not set.

    Where such a variable is demanded, a script that expects a KeyError gets one. Else it is what the launcher sets that the script
    is written for, as srun, or unknown.
    """

    def __init__(self, it: Interpreter) -> None:
        self.values, self._it = it.environment, it

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
        if not isinstance(key, str):
            return Unknown()
        if key in self.values:
            return self.values[key]
        missing = Raised(Error("KeyError", (repr(key),)), inferred=key not in ENVIRONMENT)
        if self._it.catches(missing):
            raise missing
        kind = ENVIRONMENT.get(key)
        if kind is None:
            return Unknown(f"the environment variable {key}")
        it = self._it
        return str(World(it.rank, it.world_size, it.world_size).leaf(kind))

    def set_key(self, key: Any, value: Any) -> None:
        """`os.environ[key] = value`."""
        if isinstance(key, str) and isinstance(value, str):
            self.values[key] = value


class Modules:
    """sys.modules: the files that were run, by the name that each has."""

    def __init__(self, scopes: dict[str, Scope]) -> None:
        self.scopes = scopes

    def __getitem__(self, name: Any) -> Any:
        found = [scope for scope in self.scopes.values() if scope.variables.get("__name__") == name]
        return found[0] if len(found) == 1 else Unknown("a module")

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A method of a dict: `get`."""
        return Native(lambda key, default=None: self[key]) if name == "get" else Unknown(name)


@model("random.Random")
def _random(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A generator with a seed of its own draws what that seed says."""
    return random.Random(args[0]) if args and isinstance(args[0], (int, str)) else Unknown("a generator", True)


@model("atexit.register")
def _at_exit(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    it.at_exit.append((args[0], args[1:], kwargs, (it.frames[-1].source, it.frames[-1].line)))
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

    def attribute(self, it: Interpreter, name: str) -> Any:
        """enter_context, callback and close."""
        if name == "enter_context":
            return Native(lambda context: self._enter(it, context))
        if name == "callback":
            return Native(lambda function, *args, **kwargs: self._push(it, function, list(args), kwargs))
        return Native(lambda *args: None)

    def _push(self, it: Interpreter, function: Any, args: Args, kwargs: Kwargs) -> Any:
        self.entered.append(Context(leave=lambda: calls.call(it, function, args, kwargs)))
        return function

    def _enter(self, it: Interpreter, context: Any) -> Any:
        before = it.grad
        value, leave = self._entered(it, context)

        def restore() -> None:
            it.grad = before
            if leave is not None:
                leave()

        self.entered.append(Context(leave=restore))
        return value

    def _entered(self, it: Interpreter, context: Any) -> tuple[Any, Callable[[], Any] | None]:
        """What entering a context gives, and how it is left."""
        if isinstance(context, Generating):
            running = generators.running_of(it, context)
            return running.next(), running.next
        if isinstance(context, (Instance, Module)) and isinstance(context.cls, Class):
            enter, leave = context.cls.find("__enter__"), context.cls.find("__exit__")
            value = calls.call(it, Method(enter, context), [], {}) if isinstance(enter, Function) else context
            if not isinstance(leave, Function):
                return value, None
            return value, lambda: calls.call(it, Method(leave, context), [None, None, None], {})
        if not isinstance(context, Context):
            return context, None
        if context.grad is not None:
            it.grad = context.grad
        return context.value if context.enter is None else context.enter(), context.leave

    def close(self, it: Interpreter) -> None:
        """Leaves everything that was entered, the last first."""
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


__all__ = ["CALLS", "Environment", "Namespace", "Parser"]
