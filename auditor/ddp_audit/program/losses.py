"""What a loss was made of: its factors, its divisors and how it was reduced over its elements."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ddp_audit.knowledge.functions import given
from ddp_audit.program.code import calls_of, calls_of_kind, hints_at, is_given, names_in, written
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.meaning import is_kind, says
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Clip, Node, Step
from ddp_audit.program.values import MISSING, Alt, Const, Expr, Items, Made, Unknown, Value, World, evaluate

MEAN, SUM, NONE = "mean", "sum", "none"


@dataclass(slots=True)
class Loss:
    """The scale of a loss. `worlds` counts multiplications by the world size less divisions by it.

    `reduced` is how the elements became one number: mean, sum, none; empty where that is not known. `parts` are the values on
    the way to it, `opaque` says that something on the way is not known.
    """

    worlds: int = 0
    reduced: str = ""
    divisors: list[Value] = field(default_factory=list)
    factors: list[Value] = field(default_factory=list)
    summed: list[Value] = field(default_factory=list)  # operands of sum()
    averaged: list[Value] = field(default_factory=list)  # operands of mean()
    named: dict[str, Value] = field(default_factory=dict)  # keywords of the loss function
    function: str = ""  # the loss function of torch
    labels: Value | None = None  # what it was given as its target
    opaque: bool = False
    sometimes: bool = False  # divided in one of several alternatives alone
    program: Program | None = None  # whose wrapped models are looked into, where a forward gives the loss

    @property
    def is_global(self) -> bool:
        """Whether a divisor or factor was summed over the ranks, as a global count is."""
        return any(says(operation_of(v), "shares-between-ranks") for d in (*self.divisors, *self.factors) for v in behind(d))


def loss_of(value: Value | None, program: Program | None = None) -> Loss:
    """Reads a loss from the outside in; with a program on into the forward of the wrapped model that computes it."""
    loss = Loss(program=program)
    if value is not None:
        _read(value, loss, 0)
    return loss


def adds_up(program: Program, value: Value | None) -> bool:
    """Whether a loss is the sum over its elements, or may be: where that is not seen, and some loss of the program is one."""
    reduced = loss_of(value, program).reduced
    return reduced == SUM or (reduced != MEAN and is_given(program, "reduction", "sum"))


def _read(value: Value, loss: Loss, depth: int) -> None:
    if depth > 40:
        loss.opaque = True
        return
    match value:
        case Expr(op="/", args=(left, right)):
            _divide(right, loss)
            _read(left, loss, depth + 1)
        case Expr(op="*", args=(left, right)):
            _product(left, right, loss, depth)
        case Expr(op="+" | "-", args=(left, right)):
            _sum_of((left, right), loss, depth, together=True)
        case Expr(op="ifexp", args=(_, then, orelse)):
            _sum_of((then, orelse), loss, depth)
        case Alt(options=alternatives):
            _sum_of(alternatives, loss, depth)
        case Unknown(by=Made() as by):
            _call(by, loss, depth)
        case Items(keys=None, items=terms) if terms:  # a list of losses, which are added up
            _sum_of(terms, loss, depth, together=True)
        case _:
            loss.opaque = loss.opaque or not loss.reduced


def _call(by: Made, loss: Loss, depth: int) -> None:
    rest = list(by.args)
    if is_kind(by.name, "loss-functions"):
        how = by.argument("reduction")
        loss.reduced = loss.reduced or (str(how.value) if isinstance(how, Const) else MEAN if how is None else "")
        # A class was made with its settings, which are named; a function is given them behind the tensors.
        loss.named = given(by.name, by.args, dict(by.named)) if by.name.rsplit(".", 1)[-1].islower() else dict(by.named)
        loss.function, loss.labels = by.name, by.argument("target") or (rest[1] if len(rest) > 1 else None)
        if loss.reduced == MEAN:
            loss.averaged += rest[:1]
    elif by.name == "builtins.sum" and rest and isinstance(rest[0], Items):
        _read(rest[0], loss, depth + 1)
    elif is_kind(by.name, "mean", "sum") and rest:
        operand, whole = rest[0], len(rest) == 1 and by.argument("dim") is None
        mean = is_kind(by.name, "mean")
        (loss.averaged if mean else loss.summed).append(operand)
        if whole and not loss.reduced:
            loss.reduced = MEAN if mean else SUM
        inner = Loss(program=loss.program)
        _read(operand, inner, depth + 1)
        loss.worlds += inner.worlds
        loss.divisors += inner.divisors if not whole or inner.reduced in (MEAN, SUM) else []
        if not whole:
            loss.reduced = loss.reduced or inner.reduced
            loss.averaged += inner.averaged
            loss.summed += inner.summed
    elif is_kind(by.name, "division") and len(rest) > 1:
        _divide(rest[1], loss)
        _read(rest[0], loss, depth + 1)
    elif is_kind(by.name, "product") and len(rest) > 1:
        _product(rest[0], rest[1], loss, depth)
    elif is_kind(by.name, "reduces-with-gradient") and rest:
        loss.worlds += 0 if is_kind(by.argument("op"), "no-sum") else 1
        _read(rest[0], loss, depth + 1)
    elif by.name == "returned" and rest:
        _read(rest[0], loss, depth + 1)
    elif (inner_value := _of_forward(by, loss.program)) is not None:
        _read(inner_value, loss, depth + 1)
    elif is_kind(by.name, "same-loss") or says(by.name, "reduces"):
        main = next((a for a in rest if a.deps), None)
        if main is not None:
            _read(main, loss, depth + 1)
    else:
        loss.opaque = loss.opaque or not loss.reduced


def _of_forward(by: Made, program: Program | None) -> Value | None:
    """What the forward of a wrapped model returns, or the part of it that is taken out; None where it was not followed."""
    if program is None:
        return None
    if by.name == "forward":
        number = by.argument("node")
        wrapper = program.node(number.value).object if isinstance(number, Const) else None
        inside = None if wrapper is None else program.inside.get(wrapper.key)
        return None if inside is None else inside.result
    if is_kind(by.name, "element") or by.name.startswith("."):
        owner = by.args[0]
        whole = _of_forward(owner.by, program) if isinstance(owner, Unknown) and owner.by is not None else None
        key = by.args[1] if len(by.args) > 1 else Const(value=by.name.removeprefix("."))
        return None if whole is None else _part(whole, key)
    return None


def _part(whole: Value, key: Value) -> Value | None:
    if not isinstance(whole, Items) or whole.many or not isinstance(key, Const):
        return None
    if whole.keys is not None:
        pairs = zip(whole.keys, whole.items, strict=True)
        return next((item for name, item in pairs if isinstance(name, Const) and name.value == key.value), None)
    index = key.value
    return whole.items[index] if isinstance(index, int) and -len(whole.items) <= index < len(whole.items) else None


def _divide(divisor: Value, loss: Loss) -> None:
    for part in _multiplied(divisor):
        if is_world_size(part):
            loss.worlds -= 1
        else:
            loss.divisors.append(part)


def _product(left: Value, right: Value, loss: Loss, depth: int) -> None:
    main, other = (left, right) if left.deps or not right.deps else (right, left)
    if main.deps and other.deps:
        loss.opaque = True
        return
    for part in _multiplied(other):
        if is_world_size(part):
            loss.worlds += 1
        elif isinstance(part, Expr) and part.op == "/" and (isinstance(part.args[0], Const) or is_world_size(part.args[0])):
            loss.worlds += is_world_size(part.args[0])
            _divide(part.args[1], loss)
        else:
            loss.factors.append(part)
    _read(main, loss, depth + 1)


def _sum_of(parts: Iterable[Value], loss: Loss, depth: int, together: bool = False) -> None:
    """Terms of a sum (`together`), or alternatives: what they have in common, and the divisors of all.

    A factor on one term of a sum is the weight of that term.
    """
    parts = list(parts)
    terms = [part for part in parts if part.deps] or [part for part in parts if not isinstance(part, Const)]
    if not terms:
        loss.opaque = True
        return
    read = []
    for term in terms:
        one = Loss(program=loss.program)
        _read(term, one, depth + 1)
        read.append(one)
    powers = {one.worlds for one in read}
    loss.worlds += 0 if together and len(powers) > 1 else max(powers, key=abs)
    loss.opaque = loss.opaque or any(one.opaque for one in read)
    reduced = {one.reduced for one in read}
    loss.reduced = loss.reduced or (reduced.pop() if len(reduced) == 1 else "")
    loss.sometimes |= any(one.sometimes for one in read) or (not together and len({bool(one.divisors) for one in read}) > 1)
    for one in read:
        loss.divisors += one.divisors
        loss.factors += one.factors
        loss.summed += one.summed
        loss.averaged += one.averaged
        loss.named |= one.named
        loss.function, loss.labels = loss.function or one.function, loss.labels or one.labels


def _multiplied(value: Value) -> Iterator[Value]:
    """The factors of a product."""
    match value:
        case Expr(op="*", args=(left, right)):
            yield from _multiplied(left)
            yield from _multiplied(right)
        case Expr(op="float" | "int", args=(inner,)):
            yield from _multiplied(inner)
        case _:
            yield value


def is_world_size(value: Value) -> bool:
    """Whether a value is the number of ranks, in every job."""
    if isinstance(value, Const):
        return False
    return all(evaluate(value, world) is not MISSING and evaluate(value, world) == world.world_size for world in _JOBS)


_JOBS = (World(0, 2, 2), World(1, 3, 3), World(0, 4, 2))


def trained_by_ddp(program: Program, backward: Node) -> bool:
    """Whether a backward goes through a forward of torch's own wrapper whose averaging nobody changed."""
    if program.frameworks.owns_backward:
        return False
    return any(
        n.through == "wrapper" and n.object is not None and n.object.kind == "ddp" for n in program.forwards_of(backward.target)
    )


def scales_by_hand(program: Program) -> bool:
    """Whether the code scales gradients itself, or says how they are reduced."""
    if hints_at(program, "scales-gradients"):
        return True
    if any(call.node.args and "grad" in names_in(call.node.args[0]) for call in calls_of(program, "all_reduce")):
        return True
    scaled = [call.node.func for call in calls_of_kind(program, "scales-in-place")]
    scaled += [one.node.target for one in written(program, ast.AugAssign, "grad") if isinstance(one.node.op, (ast.Div, ast.Mult))]
    return any("grad" in names_in(target) for target in scaled)


def scale_matters(program: Program) -> bool:
    """Whether the scale of the gradients reaches the weights: optimizers of Adam's kind divide it out, unless it is clipped."""
    if program.has(Clip):
        return True
    kinds = [n.object for n in program.of(Step) if n.object is not None and n.object.kind == "optimizer"]
    return bool(kinds) and all(is_kind(kind, "scale-of-gradients-counts") for kind in kinds)
