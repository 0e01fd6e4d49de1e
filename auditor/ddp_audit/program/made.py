"""What a value was computed from: the chain of operations and calls behind it, asked by the rules on losses and files."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from ddp_audit.program.values import Alt, Bound, Const, Expr, Items, Made, Unknown, Value

_MOST = 400  # values that are looked at behind one


def sources(value: Value) -> tuple[Value, ...]:
    """The values that one was computed from directly."""
    if isinstance(value, Unknown):  # no `match`: rules and branches by rank ask this of every value behind a value
        made = value.by
        return () if made is None else (*made.args, *(v for _, v in made.named)) if made.named else made.args
    if isinstance(value, Expr):
        return value.args
    if isinstance(value, Items):
        return value.items
    if isinstance(value, Alt):
        return value.options
    return (value.receiver,) if isinstance(value, Bound) else ()


def behind(value: Value, stop: Callable[[Value], bool] | None = None) -> Iterator[Value]:
    """A value and everything that it was computed from, nearest first. What `stop` says yes to is given and not looked behind."""
    queue, seen = [value], {id(value)}
    for current in queue:
        yield current
        if len(queue) > _MOST or (stop is not None and stop(current)):
            continue
        for inner in sources(current):
            if id(inner) not in seen:
                seen.add(id(inner))
                queue.append(inner)


def operation_of(value: Value) -> str:
    """The operation or call that a value came from: `/`, `mean`, `torch.nn.functional.cross_entropy`; empty where unknown."""
    if isinstance(value, Expr):
        return value.op
    return value.by.name if isinstance(value, Unknown) and value.by is not None else ""


# Names what made the length of a list; the argument is what the innermost loop around goes over.
FILLED = "filled in a loop"
_SAME_PATH = ("pathlib.Path", "builtins.str", "os.path.abspath", "os.path.realpath", "os.path.expanduser", "os.fspath", "str")


def path_key(value: Value) -> tuple[Hashable, ...] | None:
    """A path as its pieces, so that two spellings of one path are equal; None where it has pieces without a name."""
    pieces: list[Hashable] = []
    if not _pieces(value, pieces):
        return None
    key: list[Hashable] = []
    for piece in pieces:
        if isinstance(piece, str) and key and isinstance(key[-1], str):
            key[-1] += piece
        else:
            key.append(piece)
    return tuple(k.replace("//", "/").removeprefix("./") if isinstance(k, str) else k for k in key)


def _pieces(value: Value, pieces: list[Hashable]) -> bool:
    match value:
        case Const(value=None):
            pass
        case Const(value=text):
            pieces.append(str(text))
            return True
        case Expr(op="format" | "+", args=args) if args:
            return all(_pieces(arg, pieces) for arg in args)
        case Expr(op="/", args=(left, right)):
            return _pieces(left, pieces) and _pieces(Const(value="/"), pieces) and _pieces(right, pieces)
        case Unknown(by=Made(name=name, args=(first, *rest))) if name in _SAME_PATH:
            return _pieces(first, pieces) and all(_pieces(Const(value="/"), pieces) and _pieces(r, pieces) for r in rest)
        case Expr(op="str", args=(inner,)):
            return _pieces(inner, pieces)
    default = value.default if isinstance(value, Const) else None
    if default is not None:
        pieces.append(("option", default.name))
        return True
    if not value.text:
        return False
    pieces.append(("value", value.text))
    return True


_PLACES = ("rank", "local_rank", "node_rank", "world_size", "local_world_size")
_OF_PYTHON = ("builtins.", "collections.", "itertools.", "math.", "heapq.", "bisect.")


def is_of_the_program(value: Value) -> bool:
    """Whether a value comes from constants, ranks and what the program makes of them alone: no option, and nothing that is read."""
    match value:
        case Const(default=default):
            return default is None
        case Expr(op=op, args=()):
            return op in _PLACES or op.startswith("loop:")
        case Expr(args=parts) | Alt(options=parts):
            return all(map(is_of_the_program, parts))
        case Items(items=parts):
            return all(isinstance(part, Unknown) or is_of_the_program(part) for part in parts)
        case Unknown(by=Made(name=name, args=parts)) if name.startswith(_OF_PYTHON):
            return all(map(is_of_the_program, parts))
    return False


__all__ = ["FILLED", "behind", "is_of_the_program", "operation_of", "path_key", "sources"]
