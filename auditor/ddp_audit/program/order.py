"""In which order the elements of a value come: whether two processes see them alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.made import behind
from ddp_audit.program.meaning import comes_from, says
from ddp_audit.program.values import Alt, Const, Expr, Items, Made, Obj, Unknown, Value

# Why the order is not the same in every process.
HASHES = "the hashes of strings, which each process salts differently"
ADDRESSES = "the addresses of objects"
LISTING = "the order in which the file system lists them"

_KEEP = (
    "builtins.dict",
    "builtins.filter",
    "builtins.map",
    "keys",
    "values",
    "items",
    "copy",
    "builtins.reversed",
    "itertools.chain",
)
_OF_SETS = ("intersection", "union", "difference", "symmetric_difference")


@dataclass(frozen=True, slots=True)
class Unordered:
    """Elements that come in another order in another process. `sure` where their type is known."""

    reason: str
    sure: bool


def unordered(value: Value) -> Unordered | None:
    """Why the elements of a value come in different orders in different processes; None where they do not, or nothing is known."""
    match value:
        case Items(kind="set", items=items, many=many, over=over):
            inner = None if over is None else unordered(over)
            return _of_set(items, many or len(items) == 1, value.text) or inner
        case Items(over=Value() as over):
            return unordered(over)
        case Expr(op="&" | "|" | "-" | "^", args=args) | Alt(options=args):
            return _first(args)
        case Obj(kind="enumerate", info=Value() as inner):
            return unordered(inner)
        case Obj(kind="zip", info=list() as parts):
            return _first(parts)
        case Unknown(by=Made(name=name, args=args)):
            if is_kind(name, "lists-files"):
                return Unordered(LISTING, True)
            if name in _OF_SETS or name in _KEEP:
                return _first(args)
    return None


def in_order(value: Value) -> Value:
    """The same elements, sorted."""
    if isinstance(value, Items):
        return replace(value, kind="list" if value.keys is None else value.kind, over=None)
    if isinstance(value, (Unknown, Expr, Alt)):
        return Unknown(taint=value.taint, deps=value.deps, text=value.text, by=Made("builtins.sorted", (value,)))
    return value


def _first(values: tuple[Value, ...] | list[Value]) -> Unordered | None:
    return next((found for found in map(unordered, values) if found is not None), None)


def _of_set(items: tuple[Value, ...], stands_for_many: bool, text: str) -> Unordered | None:
    """Why a set of these elements has no order: texts and objects have none, numbers come alike in every process."""
    if len(items) < 2 and not stands_for_many:
        return None
    if len(items) == 1 and isinstance(items[0], Const):
        return None
    for item in items:
        match item:
            case Const(value=str()) | Expr(op="format" | "str"):
                return Unordered(HASHES, True)
            case Obj():
                return Unordered(ADDRESSES, True)
    unknown = [item for item in items if isinstance(item, (Unknown, Alt, Items))]
    if not unknown:
        return None
    if any(comes_from(item, "gives-parameters") for item in unknown):
        return Unordered(ADDRESSES, True)
    names = (text, *(source.text for item in unknown for source in behind(item)))
    return Unordered(HASHES, any(says(name, "texts") for name in names) and not any(says(name, "numbers") for name in names))


__all__ = ["ADDRESSES", "HASHES", "LISTING", "Unordered", "in_order", "unordered"]
