"""Running totals of an interpreted run: which values hold a sum over the ranks, and what was added to them since.

A sum over all ranks that gets a rank's own part added and is summed over the ranks again counts its old content once for each
rank. Only additions and copies carry the fact: a product, a quotient (a sum divided by the number of ranks is a mean, which may be
reduced again) or a difference ends it. So does a comparison, because a flag that ranks raise is summed and asked: it is not one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ddp_audit.explore.exact.contents import tensors_in
from ddp_audit.explore.exact.values import Instance, Lib, Param, Tensor, Unknown
from ddp_audit.knowledge.kinds import is_kind

if TYPE_CHECKING:
    from ddp_audit.events import Event
    from ddp_audit.explore.exact.interpreter import Interpreter

Value = TypeVar("Value")
Place = tuple[str, int]  # path and line
_MOST_PARTS = 64  # of a list that a tensor is made of


@dataclass(slots=True, eq=False)
class Reduction:
    """An all-reduce with a sum. `compared` says that the program asked for what it left."""

    event: Event
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Total:
    """A value that holds a sum over the ranks. `added` is where a rank's own part was added to it since, outermost call first."""

    of: Reduction
    added: tuple[Place, ...] | None = None


@dataclass(slots=True, eq=False)
class Holder:
    """What tensors that share their elements hold."""

    total: Total | None = None


@dataclass(frozen=True, slots=True)
class SummedAgain:
    """An all-reduce of a total that already held a sum over the same ranks: the two events, and where a part was added between."""

    event: Event
    before: Event
    added: tuple[Place, ...]

    @property
    def place(self) -> Place:
        """The call that reduces, in the function that both the reduction and the addition were reached from."""
        way = [(site.path, site.line) for site in reversed(self.event.stack)]
        return next((one for one, other in zip(way, self.added, strict=False) if one != other), way[-1])


def total_of(value: Any) -> Total | None:
    """The sum over the ranks that a tensor, a number, or one of the first elements of a list holds."""
    if isinstance(value, Tensor):
        return value.holder.total if isinstance(value.holder, Holder) else None
    if isinstance(value, Unknown):
        return value.total if isinstance(value.total, Total) else None
    if isinstance(value, (list, tuple)):
        found = [total for part in value[:_MOST_PARTS] if (total := total_of(part)) is not None]
        return next((total for total in found if total.added is not None), found[0] if found else None)
    return None


def keep(value: Value, total: Total | None) -> Value:
    """The value, which holds this sum from here on, or none."""
    if isinstance(value, Tensor) and not isinstance(value, Param):
        if isinstance(value.holder, Holder):
            value.holder.total = total
        elif total is not None:
            value.holder = Holder(total)
    elif isinstance(value, Unknown):
        value.total = total
    return value


def copied(source: Any, made: Value) -> Value:
    """What was made of a value alone, holding the sum that it held."""
    total = total_of(source)
    return made if total is None else keep(made, total)


def made_by(name: str, source: Any, made: Value) -> Value:
    """What a function or method of torch made of its first argument."""
    return copied(source, made) if is_kind(name, "made-of-elements") else made


def shared(source: Tensor, made: Tensor) -> Tensor:
    """A tensor with the elements of another: what is done to one is done to the other. Parameters are left out."""
    if not isinstance(source, Param):
        if not isinstance(source.holder, Holder):
            source.holder = Holder()
        made.holder = source.holder
    return made


def combined(it: Interpreter, op: ast.operator, left: Any, right: Any, made: Value) -> Value:
    """What an operator made of two values, one of which is not known."""
    return keep(made, _sum(it, left, right)) if isinstance(op, ast.Add) else made


def in_place(it: Interpreter, op: ast.operator, left: Any, right: Any, made: Any) -> Any:
    """What `left op= right` leaves: a tensor stays the object that it was."""
    total = _grown(it, left, right) if isinstance(op, ast.Add) else None
    if isinstance(left, Tensor) and isinstance(made, Tensor) and not isinstance(left, Param):
        left.deps |= made.deps
        left.local = made.local
        left.shape = made.shape if left.shape is None else left.shape
        made = left
    return keep(made, total)


def changed(it: Interpreter, name: str, tensor: Any, args: Iterable[Any]) -> None:
    """A method or function that works in place, `add_` or another, was called."""
    other = next(iter(args), None)
    if name == "add_":
        keep(tensor, _grown(it, tensor, other))
    elif name == "copy_":
        keep(tensor, total_of(other))
    elif not is_kind(name, "made-of-elements"):
        for part in tensor if isinstance(tensor, (list, tuple)) else (tensor,):
            keep(part, None)


def put(tensor: Tensor, value: Any) -> None:
    """`tensor[..] = value`: the tensor holds what the part held that was put there."""
    keep(tensor, total_of(value))


def compared(*values: Any) -> None:
    """The program compares values, or asks whether they are true."""
    for value in values:
        total = total_of(value)
        if total is not None:
            total.of.compared = True


def forgotten(values: Iterable[Any]) -> None:
    """Values that are given to what is not followed may be changed there."""
    for value in values:
        for tensor in tensors_in(value):
            keep(tensor, None)


def reduced(it: Interpreter, op: str, payload: Any, made: list[Event]) -> None:
    """A collective that writes its tensors was issued. What is summed over all ranks holds their sum."""
    sums = is_kind(op, "sums-up") and bool(made) and made[-1].reduce_op == "sum"
    issued = it.events[-1] if made and it.events else None
    for tensor in [payload] if isinstance(payload, Tensor) else tensors_in(payload):
        before = total_of(tensor)
        if not sums or issued is None or isinstance(tensor, Param):
            keep(tensor, None)
            continue
        if before is not None and before.added is not None and not before.of.compared and before.of.event.group == issued.group:
            it.summed_again.setdefault(
                (issued.stack, before.added), (SummedAgain(issued, before.of.event, before.added), before.of)
            )
        keep(tensor, Total(Reduction(issued)))


def settled(it: Interpreter) -> list[SummedAgain]:
    """The totals that were summed again and that no comparison showed to be flags."""
    return [found for found, reduction in it.summed_again.values() if not reduction.compared]


def _grown(it: Interpreter, total: Any, part: Any) -> Total | None:
    """The total after a part was added to it: one that is not a sum over the ranks itself is the rank's own."""
    held = total_of(total)
    if held is None or held.added is not None or total_of(part) is not None or isinstance(part, (Lib, Instance)):
        return held
    return Total(held.of, tuple((frame.source.path, frame.line) for frame in it.frames))


def _sum(it: Interpreter, left: Any, right: Any) -> Total | None:
    """The total that `left + right` holds. A number that stands before a sum is where a count begins."""
    if total_of(left) is not None:
        return _grown(it, left, right)
    own = isinstance(left, (Tensor, Unknown)) and left.local
    return _grown(it, right, left) if own else total_of(right)
