"""Numbers of steps as expressions: how they grow with the world size, and whether the lengths in them are of the whole data."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.launch.scaling import depends_on_world
from ddp_audit.program.loading import samplers_of, shares_out
from ddp_audit.program.meaning import length_of, says
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import FloorDivision, LoaderMade
from ddp_audit.program.values import MISSING, Alt, Const, Expr, Items, Obj, Unknown, Value, World, defaults_in, evaluate, options

_SAMPLE = 5_040  # stands for an unknown number: many world sizes divide it


def leaves(value: Value) -> Iterator[Value]:
    """What an expression is made of, down to its constants and unknowns."""
    if isinstance(value, Expr) and value.args:
        for arg in value.args:
            yield from leaves(arg)
    elif isinstance(value, Alt):
        for option in value.options:
            yield from leaves(option)
    elif isinstance(value, Items):
        for item in value.items:
            yield from leaves(item)
    elif isinstance(value, Const) and value.formula is not None:
        yield from leaves(value.formula)
    else:
        yield value


def growth(value: Value) -> float | None:
    """How many times larger a number is on 4 processes than on 1, where everything else is equal; None where that is open."""
    atoms = {leaf.text: _SAMPLE for leaf in leaves(value) if isinstance(leaf, Unknown) and leaf.text}
    one, four = evaluate(value, World(0, 1, 1, atoms)), evaluate(value, World(0, 4, 4, atoms))
    if MISSING in (one, four) or not isinstance(one, int | float) or not isinstance(four, int | float) or not one:
        return None
    return four / one


def is_open(value: Value) -> bool:
    """Whether something in an expression is unknown that may speak of processes."""
    for leaf in leaves(value):
        if isinstance(leaf, Unknown) and length_of(leaf) is None and (not leaf.text or says(leaf, "processes")):
            return True
        if not isinstance(leaf, Unknown | Const | Expr):
            return True
    return False


def lengths(program: Program, value: Value) -> list[tuple[str, Value, bool | None]]:
    """Each `len(..)` in an expression: its text, what it is the length of, and whether that is the whole data or a share of it."""
    found: dict[str, Value] = {}
    for leaf in leaves(value):
        of = length_of(leaf)
        if of is not None:
            found.setdefault(leaf.text, of)
    return [(text, of, _is_whole(program, of)) for text, of in found.items()]


def _is_whole(program: Program, of: Value) -> bool | None:
    answers: set[bool | None] = set()
    for option in options(of):
        if isinstance(option, Obj) and option.kind == "dataset":
            answers.add(shares_out(program, option) is not True)
        elif isinstance(option, Obj) and option.kind == "loader":
            made = loader_node(program, option)
            shared = [shares_out(program, sampler) for sampler in samplers_of(made)] if made is not None else [None]
            answers.add(None if None in shared else True not in shared)
        elif isinstance(option, Obj) and option.kind == "sampler":
            answers.add(False)
        else:
            answers.add(None)
    return answers.pop() if len(answers) == 1 else None


def loader_node(program: Program, loader: Obj) -> LoaderMade | None:
    """The call that makes a loader."""
    return next((node for node in program.of(LoaderMade) if node.object is not None and node.object.key == loader.key), None)


def divided_names(program: Program) -> set[str]:
    """The configuration values that something divides by the world size: they are of all processes together."""
    found: set[str] = set()
    for node in program.of(FloorDivision):
        left, right = node.left, node.right
        if left is not None and right is not None and depends_on_world(right):
            found |= {default.name for default in defaults_in(left)} | {left.text}
    return found - {""}
