"""What is known of the tensor that a value is: its element type, the number of its elements, its device, on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.knowledge.tensors import BY_DATA, JOINS, LIKE_ANOTHER, OF_ELEMENTS, OF_SIZES, TYPES
from ddp_audit.program.values import (
    MISSING,
    Alt,
    Const,
    Expr,
    Ext,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    World,
    evaluate,
    options,
    truth,
)

_SAME = ("same-elements", "keeps-elements")
_TRUTH = ("comparison", "truth-of-elements")


@dataclass(frozen=True, slots=True)
class Facts:
    """A tensor on one rank; empty and None where nothing is known."""

    dtype: str = ""
    numel: int | None = None
    device: str = ""  # cpu, or given (a device was named)


def on_rank(value: Value, world: World) -> Value:
    """The value of a rank, where it depends on a condition that is known for the rank."""
    match value:
        case Alt(options=(then, orelse), choice=Value() as choice) | Expr(op="ifexp", args=(choice, then, orelse)):
            taken = truth(choice, world)
            return value if taken is None else on_rank(then if taken else orelse, world)
    return value


def facts(value: Value, world: World) -> Facts:
    """What is known of a tensor on one rank."""
    value = on_rank(value, world)
    if not isinstance(value, Unknown) or value.by is None:
        return Facts()
    made = value.by
    last = made.name.rsplit(".", 1)[-1]
    given = _dtype_name(made.argument("dtype"))
    if made.name.startswith("torch.") and last in OF_SIZES:
        sizes = made.args[:1] if last == "full" else made.args
        filled = _literal_dtype(made.args[1], world) if last == "full" and len(made.args) > 1 else "float32"
        return Facts(given or ("" if made.argument("dtype") else filled), _product(sizes, world), _device(made))
    if made.name.startswith("torch.") and last in OF_ELEMENTS and made.args:
        dtype = given or ("" if made.argument("dtype") else _literal_dtype(made.args[0], world))
        return Facts(dtype, _count(made.args[0]), _device(made))
    if made.name.startswith("torch.") and last in (*LIKE_ANOTHER, "clone") and made.args:
        inner = facts(made.args[0], world)
        return Facts(given or inner.dtype, inner.numel, inner.device)
    if is_kind(last, *_SAME) and made.args:
        inner = facts(made.args[0], world)
        moved = made.name in ("cuda", "cpu", "to") and not any(_dtype_name(arg) for arg in made.args[1:])
        dtype = TYPES.get(last) or next((d for d in map(_dtype_name, made.args[1:]) if d), "") or given or inner.dtype
        return Facts(dtype, inner.numel, ("cpu" if last == "cpu" else "given") if moved else inner.device)
    return Facts()


def rows(value: Value, world: World) -> int | None:
    """How many elements a sequence has along its first axis, where it is made of known numbers."""
    match value:
        case Obj(kind="dataset", cls="TensorDataset" | "Subset", info=[*parts]) if parts:
            return rows(parts[-1] if value.cls == "Subset" else parts[0], world)
        case Obj(kind="range" | "enumerate", info=Value() as inner):
            count = evaluate(inner, world) if value.kind == "range" else rows(inner, world)
            return count if isinstance(count, int) else None
        case Items(items=items, many=False):
            return len(items)
        case Unknown(by=Made(name=name, args=(first, *_))) if name.startswith("torch.") and name.rsplit(".", 1)[-1] in OF_SIZES:
            count = evaluate(first.items[0] if isinstance(first, Items) and first.items else first, world)
            return count if isinstance(count, int) else None
        case Unknown(by=Made(name=name, args=(first, *_))) if is_kind(name, *_SAME):
            return rows(first, world)
    return None


def sized_by_data(value: Value) -> str:
    """The operation that makes the size of a tensor depend on its contents; empty where none is known to."""
    found = sizing(value)
    return "" if found is None else found[0]


def sizing(value: Value) -> tuple[str, Value] | None:
    """The operation that makes the size of a tensor depend on contents, and the value whose contents decide it."""
    for current in _same_size(value):
        if not isinstance(current, Unknown) or current.by is None:
            continue
        name, args = current.by.name, current.by.args
        module, _, last = name.rpartition(".")
        if args and last in BY_DATA and module in ("", "torch", "torchvision.ops") and current.by.argument("size") is None:
            return name, args[1] if last == "masked_select" and len(args) > 1 else args[0]
        if name == "torch.where" and len(args) == 1:
            return name, args[0]
        if name == "[]" and len(args) == 2 and _is_mask(args[1]):
            return "a mask", args[1]
        if last in JOINS and module == "torch" and args:
            return next((by for part in _parts(args[0]) if (by := sizing(part))), None)
    return None


def _parts(joined: Value) -> Iterator[Value]:
    """The elements of a list of tensors, whatever list it is."""
    for option in options(joined):
        if isinstance(option, Items) and option.keys is None:
            yield from option.items


def _same_size(value: Value) -> Iterator[Value]:
    """A value and what it was made of by operations that keep the size."""
    for _ in range(20):
        yield value
        if isinstance(value, Unknown) and value.by is not None and value.by.args and is_kind(value.by.name, *_SAME):
            value = value.by.args[0]
        elif isinstance(value, Expr) and len(value.args) == 2 and isinstance(value.args[1], Const):
            value = value.args[0]
        else:
            return


def _is_mask(index: Value) -> bool:
    if isinstance(index, Expr):
        return is_kind(index.op, *_TRUTH) and bool(index.args)
    return isinstance(index, Unknown) and index.by is not None and is_kind(index.by.name, *_TRUTH)


def _dtype_name(value: Value | None) -> str:
    """`float32` of the value `torch.float32` or `torch.float`; empty of anything else."""
    module, _, name = value.name.rpartition(".") if isinstance(value, Ext) else ("", "", "")
    return TYPES.get(name, "") if module == "torch" else ""


def _literal_dtype(value: Value, world: World) -> str:
    """The element type of torch.tensor(value) where the value is written down."""
    match value:
        case Const(value=bool()):
            return "bool"
        case Const(value=int(), default=None):
            return "int64"
        case Const(value=float()):
            return "float32"
        case Items(items=items, many=False, keys=None) if items:
            found = {_literal_dtype(item, world) for item in items}
            return "" if "" in found else "float32" if "float32" in found else "int64" if "int64" in found else "bool"
        case Expr():
            result = evaluate(value, world)
            return "" if result is MISSING else _literal_dtype(Const(value=result), world)
    return ""


def _count(value: Value) -> int | None:
    """The number of elements of torch.tensor(value)."""
    if isinstance(value, Items) and not value.many and value.keys is None:
        inner = [_count(item) for item in value.items]
        return None if None in inner else sum(n for n in inner if n is not None)
    return 1 if isinstance(value, (Const, Expr)) else None


def _product(sizes: tuple[Value, ...], world: World) -> int | None:
    if len(sizes) == 1 and isinstance(sizes[0], Items) and not sizes[0].many:
        sizes = sizes[0].items
    total = 1
    for size in sizes:
        number = evaluate(size, world)
        if not isinstance(number, int):
            return None
        total *= number
    return total


def _device(made: Made) -> str:
    device = made.argument("device")
    named = device is not None and not (isinstance(device, Const) and device.value in ("cpu", None))
    return "given" if named or made.argument("**") is not None else "cpu"


__all__ = ["Facts", "facts", "on_rank", "rows", "sized_by_data", "sizing"]
