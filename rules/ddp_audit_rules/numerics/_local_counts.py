"""Counts of what is in one rank's batch that a loss is divided by, or takes its mean over."""

from __future__ import annotations

from ddp_audit.tree.questions import Loss, comes_from, is_kind, says
from ddp_audit.tree.values import DATA, RANDOM, Bound, Const, Expr, Made, Unknown, Value, behind, operation_of, options

_IGNORED = -100  # the default of ignore_index


def local_count(loss: Loss) -> tuple[Value, bool] | None:
    """The count of this rank's own that the loss is divided by, and whether it surely is one; None without one."""
    for divisor in loss.divisors:
        if (loss.summed or loss.reduced == "sum") and _counts_selected(divisor):
            return divisor, not loss.sometimes
    for averaged in loss.averaged:
        for operand in options(averaged):
            index = _selected_by(operand)
            if index is not None:
                return index, True
    if loss.reduced == "mean" and _leaves_out(loss):
        return Const(value=None, text="labels that are not left out"), True
    ignored = loss.named.get("ignore_index")
    if ignored is not None and loss.reduced == "mean":
        return Const(value=None, text="labels without ignore_index"), _may_be_read(ignored)
    return None


def _may_be_read(ignored: Value) -> bool:
    """Whether labels hold the number that is left out as they are stored: a class, or padding. A negative one has to be put in."""
    return isinstance(ignored, Const) and type(ignored.value) is int and ignored.value >= 0


def _selected_by(value: Value) -> Value | None:
    """What says of each element whether it is in a part of a tensor; None for a part that is taken otherwise."""
    if not isinstance(value, Unknown) or value.by is None or not is_kind(value, "selected-part"):
        return None
    index = value.by.args[-1]
    return index if _is_selection(index) else None


def _leaves_out(loss: Loss) -> bool:
    """Whether the labels are given the number that the loss function leaves out, where something in them is true."""
    if loss.labels is None or not is_kind(loss.function, "leaves-labels-out"):
        return False
    ignored = loss.named.get("ignore_index", Const(value=_IGNORED))
    if not isinstance(ignored, Const):
        return False
    for value in behind(loss.labels):
        made = value.by if isinstance(value, Unknown) else None
        if made is not None and is_kind(made.name, "puts-in"):
            given = [*made.args[1:], *(v for _, v in made.named)]
            if any(isinstance(v, Const) and type(v.value) is int and v.value == ignored.value for v in given):
                return True
    return False


def _measured(value: Value) -> tuple[Value, ...]:
    """What `len(x)`, `x.numel()` and `x.shape` tell the extent of."""
    if isinstance(value, Bound):
        return (value.receiver,)
    return value.by.args[:1] if isinstance(value, Unknown) and value.by is not None else ()


def _counts_selected(divisor: Value) -> bool:
    """Whether a divisor counts elements by what is in them: a sum over a mask or a comparison, of all dimensions."""
    for value in behind(divisor):
        if is_kind(value, "extent", "length") and any(_selected_by(owner) is not None for owner in _measured(value)):
            return True
        if not is_kind(value, "count") or not isinstance(value, Unknown) or value.by is None:
            continue
        by: Made = value.by
        if by.name == "builtins.sum":
            return bool(value.taint & {DATA, RANDOM}) and not comes_from(value, "extent") and not says(value, "size")
        if len(by.args) == 1 and by.argument("dim") is None and by.argument("axis") is None:
            return _is_selection(by.args[0])
    return False


def _is_selection(value: Value) -> bool:
    """Whether a value says of each element whether it counts."""
    if isinstance(value, (Const, Expr)) and operation_of(value) == "slice":
        return False
    for inner in behind(value):
        if is_kind(inner, "comparison"):
            return True
        if isinstance(inner, (Unknown, Bound)) and says(inner, "selection"):
            return True
    return False
