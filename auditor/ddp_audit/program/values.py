"""Values as the lowering knows them: what a value is, and whether it can differ between ranks.

A value that depends on the rank in a computable way stays an expression (`Expr`) over rank, world size and their like, so that
a condition can be asked what it says on rank 0 and on rank 1. Everything else is a constant, an object, a function, a name of
a library, or `Unknown` with its taint: the reasons for which it can differ between ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddp_audit.findings import Span
from ddp_audit.folding import TooLarge, fold
from ddp_audit.knowledge import words
from ddp_audit.program.worlds import World as World
from ddp_audit.program.worlds import option_leaf as option_leaf
from ddp_audit.program.worlds import worlds as worlds

# Why a value can differ between ranks.
RANK = "rank"
DATA = "local data"
FILES = "files"
CLOCK = "clock"
RANDOM = "random numbers"
SIGNAL = "signals"
ERROR = "an exception"

Taint = frozenset[str]
UNIFORM: Taint = frozenset()


@dataclass(frozen=True, slots=True)
class Default:
    """Where a constant that a user can override got its value: an option's or module global's name and place.

    The origins `default` and `distributed` leave the value open; the others are what the job at hand was given. `distributed` is
    what the option has to be for the run to be a distributed one, whatever its default.
    """

    name: str
    span: Span
    origin: str = "default"  # default, distributed, config-file, launch or set

    @property
    def open(self) -> bool:
        """Whether another value is as good."""
        return self.origin in ("default", "distributed")


@dataclass(frozen=True, slots=True)
class Value:
    """Base of all values. `deps` are the numbers of the forward nodes that a tensor was computed from."""

    taint: Taint = UNIFORM
    deps: frozenset[int] = frozenset()
    text: str = ""  # its source, where it was named last


@dataclass(frozen=True, slots=True)
class Made:
    """How a value came about: by a call of a library or of something unknown, an index, or an attribute.

    `name` is the full name of a function or class, the bare name of a method (its receiver is the first argument), `[]` for an
    index, `.name` for an attribute, `returned` for what a module of the project gave (the first argument), and `?` where a
    call was not followed.
    """

    name: str
    args: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()

    def argument(self, name: str) -> Value | None:
        """A keyword argument."""
        return dict(self.named).get(name)


@dataclass(frozen=True, slots=True)
class Unknown(Value):
    """A value with nothing known but its taint, and perhaps what made it, and that it is a container with an element."""

    by: Made | None = field(default=None, compare=False, repr=False)
    filled: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Const(Value):
    """A Python constant. With `default` it is what holds unless somebody overrides it, and no fact.

    `formula` is the operation that made it of a default and other constants, for a what-if over the default.
    """

    value: Any = None
    default: Default | None = None
    formula: Expr | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Expr(Value):
    """An operation over values; a leaf has no arguments and is named rank, local_rank, world_size, .."""

    op: str = ""
    args: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Items(Value):
    """A tuple, list or set display, or a dict display where `keys` is set.

    With `many` its one item stands for all of them, as in a comprehension; their number is `count` where that is known, and
    `over` is what the comprehension ranges over. `filled`: there is at least one, whatever their number. `within` is the loop in
    whose pass a display was made, None outside of loops.
    """

    items: tuple[Value, ...] = ()
    keys: tuple[Value, ...] | None = None
    kind: str = "list"  # list, tuple, set, dict
    many: bool = False
    count: Value | None = None
    over: Value | None = field(default=None, compare=False, repr=False)
    filled: bool = field(default=False, compare=False, repr=False)
    within: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alt(Value):
    """One of several values, by conditions that are not known.

    With a `choice` there are two options: the first where bool(choice), else the second.
    """

    options: tuple[Value, ...] = ()
    choice: Value | None = None


@dataclass(frozen=True, slots=True)
class Ext(Value):
    """A thing of a library by its full name: `torch.distributed.all_reduce`."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Obj(Value):
    """An object made at one place. Two values with one `key` are one object.

    `kind` is what it is to the auditor: ddp, module, optimizer, sampler, loader, dataset, group, scaler, namespace, instance, ..;
    `cls` the project's class or the library's name; `made` the place of construction. `compiled`: whether a module is its view by
    torch.compile, whose keys differ (a constant or what decides it, None for no). `parts`: a module's own, where its state is used.
    """

    key: tuple[Any, ...] = ()
    kind: str = "instance"
    cls: Any = None
    made: Span | None = None
    info: Any = field(default=None, compare=False)
    compiled: Value | None = field(default=None, compare=False)
    parts: tuple[tuple[str, Obj], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Func(Value):
    """A function of the project. `definition` is a FunctionDef; `receiver` is set on a bound method."""

    definition: Any = None
    receiver: Value | None = None


@dataclass(frozen=True, slots=True)
class Bound(Value):
    """A method of a library object that is about to be called: `optimizer.step`."""

    receiver: Value = field(default_factory=Unknown)
    name: str = ""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()  # the answer of `evaluate` where the value is not computable


def leaf(name: str) -> Expr:
    """A leaf expression; rank, local_rank and node_rank differ between ranks."""
    return Expr(op=name, taint=frozenset({RANK}) if name in ("rank", "local_rank", "node_rank") else UNIFORM, text=name)


_FOLDED = frozenset({
    "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "**", "in", "not in", "min", "max", "&", "|", "^", ">>", "<<",
    "not", "neg", "int", "bool", "str", "float", "len", "abs", "ceil", "floor", "[]",
})  # fmt: skip
_MOST_NUMBERS = 4_096  # of a range


def folded(op: str, parts: Sequence[Any]) -> Any:
    """What an operation gives on concrete values, MISSING for one that is not computed. Raises what `folding.fold` raises."""
    if op in ("format", "device"):
        return fold(".join", "" if op == "format" else ":", [fold("str", part) for part in parts])
    if op in ("is", "is not"):
        one, other = parts
        return (one is other or fold("==", one, other)) == (op == "is")
    if op == "+":
        one, other = parts
        # A rank that comes from the environment is a text there and a number here.
        if isinstance(one, str) != isinstance(other, str) and isinstance(one, (str, int)) and isinstance(other, (str, int)):
            return fold("+", fold("str", one), fold("str", other))
    return fold(op, *parts) if op in _FOLDED else MISSING


def evaluate(value: Value, world: World) -> Any:
    """The Python value of `value` on one rank of a job, or MISSING. Defaults count as values."""
    if isinstance(value, Const):
        if value.default is None or not world.atoms:
            return value.value
        return _switched(value, value.default, world)
    match value:
        case Unknown(text=text):
            return world.atoms.get(text, MISSING)
        case Items(keys=None, many=False):
            parts = [evaluate(v, world) for v in value.items]
            return MISSING if any(p is MISSING for p in parts) else tuple(parts)
        case Obj(kind="range", cls=(Value() as start, Value() as step), info=Value() as count):
            by = count.by if isinstance(count, Unknown) else None
            if by is not None and by.name == "builtins.range":
                return _numbers(*(evaluate(v, world) for v in by.args))
            first, stride, passes = (evaluate(v, world) for v in (start, step, count))
            numbers = all(isinstance(n, int) for n in (first, stride, passes))
            return _numbers(first, first + stride * passes, stride) if numbers else MISSING
        case Alt(choice=Value() as choice, options=(then, orelse)):
            chosen = evaluate(choice, world)
            return MISSING if chosen is MISSING else _thing(then if chosen else orelse, world)
        case Alt(options=alternatives):
            return _one_of([evaluate(v, world) for v in alternatives])
        case Expr(op=op, args=()):
            try:
                return world.leaf(op)
            except KeyError:
                return MISSING
        case Expr(op="ifexp", args=(test, then, orelse)):
            chosen = evaluate(test, world)
            return MISSING if chosen is MISSING else evaluate(then if chosen else orelse, world)
        case Expr(op="and" | "or" as op, args=args):
            return _evaluate_logic(op, args, world)
        case Expr(op=op, args=args):
            parts = [evaluate(v, world) for v in args]
            if any(p is MISSING for p in parts):
                return _whichever(value, world)
            try:
                return folded(op, parts)
            except (TypeError, ValueError, ArithmeticError, LookupError, TooLarge):
                return MISSING
    return MISSING


def _whichever(value: Expr, world: World) -> Any:
    """What an operation gives where its alternatives come to the same: `rank == 0` for a rank that is read in two ways."""
    open_ones = [n for n, arg in enumerate(value.args) if isinstance(arg, Alt) and arg.choice is None]
    if len(open_ones) != 1:
        return MISSING
    at = open_ones[0]
    options_there = value.args[at].options  # type: ignore[attr-defined]
    return _one_of([evaluate(replace(value, args=(*value.args[:at], v, *value.args[at + 1 :])), world) for v in options_there])


def _one_of(found: Sequence[Any]) -> Any:
    """The value that all of several are, MISSING where they are not one."""
    first = found[0] if found else MISSING
    try:
        alike = all(type(other) is type(first) and bool(other == first) for other in found)
    except (TypeError, ValueError):
        alike = False
    return first if alike and first is not MISSING else MISSING


def _switched(value: Const, default: Default, world: World) -> Any:
    """What a constant that rests on an option is in a world that may give the option another value."""
    name = option_leaf(default.name)
    if name not in world.atoms:
        return value.value
    return world.atoms[name] if value.formula is None else evaluate(value.formula, world)


def _numbers(*bounds: Any) -> Any:
    """The numbers of a range, as the elements of a list are given; MISSING where one of its bounds is, or where it is long."""
    known = all(isinstance(n, int) for n in bounds) and (len(bounds) < 3 or bounds[2])
    return tuple(range(*bounds)) if known and bounds and len(range(*bounds)) <= _MOST_NUMBERS else MISSING


def _thing(value: Value, world: World) -> Any:
    """What `evaluate` says, and an object or a list with elements for itself: it differs from None, and is true."""
    made = value.by if isinstance(value, Unknown) else None
    name = "" if made is None else made.name if made.name != "?" or not made.args else made.args[0].text
    if isinstance(value, (Obj, Func, Ext)) or words.names_class(name.rpartition(".")[2]):
        return value
    return _or_filled(value, world)


def _or_filled(value: Value, world: World) -> Any:
    found = evaluate(value, world)
    return value if found is MISSING and is_filled(value) else found


def _evaluate_logic(op: str, args: tuple[Value, ...], world: World) -> Any:
    """`and` / `or` where a decisive operand settles the matter even among unknown ones."""
    unknown = False
    last: Any = MISSING
    for arg in args:
        last = _or_filled(arg, world)
        if last is MISSING:
            unknown = True
        elif bool(last) == (op == "or"):
            return last
    return MISSING if unknown else last


def is_filled(value: Value) -> bool:
    """Whether a value is a list or its like that has an element on every rank, whatever is in it."""
    if isinstance(value, Alt) and value.options:
        return all(map(is_filled, value.options))
    if isinstance(value, Expr) and value.op in ("+", "|"):  # what is joined has the elements of all its parts
        return any(map(is_filled, value.args))
    if isinstance(value, Items):
        return value.filled or (not value.many and bool(value.items))
    return isinstance(value, Unknown) and value.filled


def truth(value: Value, world: World) -> bool | None:
    """Whether a condition holds on one rank; None where that is not computable."""
    if isinstance(value, (Obj, Func, Ext)) or is_filled(value):
        return True
    result = evaluate(value, world)
    return None if result is MISSING else bool(result)


def holds(test: Value, world: World) -> bool | None:
    """Whether a condition holds on one rank, as far as that is what parts the ranks; None if that is unknown.

    Operands of `and` / `or` that are unknown and do not ask for the rank leave the decision to the others; an index of a loop is 0.
    """
    match test:
        case Expr(op="and" | "or" as op, args=args):
            decisive = op == "or"
            answers: list[bool | None] = []
            for arg in args:
                answer = holds(arg, world)
                if answer == decisive:
                    return decisive
                if answer is not None or RANK in arg.taint:
                    answers.append(answer)
            return None if not answers or None in answers else not decisive
        case Expr(op="not", args=(inner,)):
            answer = holds(inner, world)
            return None if answer is None else not answer
        case Expr(op="bool", args=(inner,)):
            return holds(inner, world)
        case Expr(op="ifexp", args=(chooser, then, orelse)):
            chosen = holds(chooser, world)
            return None if chosen is None else holds(then if chosen else orelse, world)
    answer = truth(test, world)
    if answer is None and RANK in test.taint:
        first = dict.fromkeys(loop_leaves(test), 0)
        answer = truth(test, World(world.rank, world.world_size, world.local_world_size, first)) if first else None
    return answer


def conjuncts(test: Value, polarity: bool) -> list[tuple[Value, bool]]:
    """The conditions that all have to hold where bool(test) is `polarity`, each with the answer that it has to have."""
    match test:
        case Expr(op="and" | "or" as op, args=args) if (op == "and") == polarity:
            return [part for arg in args for part in conjuncts(arg, polarity)]
        case Expr(op="not", args=(inner,)):
            return conjuncts(inner, not polarity)
        case Expr(op="bool", args=(inner,)):
            return conjuncts(inner, polarity)
    return [(test, polarity)]


def leaves(value: Value) -> set[str]:
    """The names of the leaf expressions that a value was computed from; `?` where a part of it is not known."""
    match value:
        case Const():
            return set()
        case Expr(op=op, args=()):
            return {op}
        case Expr(args=parts) | Items(items=parts, many=False, keys=None):
            return set().union(*(leaves(part) for part in parts))
    return {"?"}


def loop_leaves(value: Value) -> Iterator[str]:
    """The names of the loop indices in an expression."""
    if isinstance(value, Expr):
        if value.op.startswith("loop:"):
            yield value.op
        for arg in value.args:
            yield from loop_leaves(arg)
    elif isinstance(value, Items):
        for inner in value.items:
            yield from loop_leaves(inner)


def defaults_in(value: Value) -> Iterator[Default]:
    """The overridable defaults that a value was computed from."""
    match value:
        case Const(default=Default() as default):
            yield default
        case Expr(args=args):
            for arg in args:
                yield from defaults_in(arg)
        case Items(items=items):
            for item in items:
                yield from defaults_in(item)


def options(value: Value) -> Sequence[Value]:
    """The values that `value` may be: itself, or the options of an Alt or of a conditional expression."""
    match value:
        case Alt(options=alternatives):
            return [option for alternative in alternatives for option in options(alternative)]
        case Expr(op="ifexp", args=(_, then, orelse)):
            return [*options(then), *options(orelse)]
    return (value,)


def the_object(value: Value | None, *kinds: str) -> Obj | None:
    """The first object of one of these kinds (any, where none is named) that the value may be."""
    if isinstance(value, Obj):
        return value if not kinds or value.kind in kinds else None
    if not isinstance(value, (Alt, Expr)):
        return None
    for option in options(value):
        if isinstance(option, Obj) and (not kinds or option.kind in kinds):
            return option
    return None


def constant(value: Value | None) -> Any:
    """The constant that a value is on every rank and in every job, else MISSING. Defaults count."""
    return value.value if isinstance(value, Const) else MISSING


def join_taint(*values: Value) -> Taint:
    """Every reason for which one of the values can differ."""
    found: Taint = UNIFORM
    for value in values:  # nearly all are empty
        if value.taint:
            found = found | value.taint
    return found


def join_deps(*values: Value) -> frozenset[int]:
    """Every forward that one of the values was computed from."""
    found: frozenset[int] = frozenset()
    for value in values:
        if value.deps:
            found = found | value.deps
    return found


def named(value: Value, text: str) -> Value:
    """The value with the source text by which it is known now."""
    return replace(value, text=text) if text and value.text != text else value


def uniform(value: Value, op: str = "?") -> Value:
    """The value after a collective that made it equal on all ranks."""
    known = not (value.taint or value.deps or isinstance(value, Items))
    return value if known else Unknown(deps=value.deps, text=value.text, by=Made(op, (value,)))
