"""Which backward passes are synchronised: the switches before their forwards, asked at chosen positions of the loops.

DDP decides in the forward of the wrapper whether the backward reduces gradients (torch 2.13, nn/parallel/distributed.py:
_pre_forward and _post_forward read require_backward_grad_sync; backward does not).
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddp_audit.program.code import calls_of, code_within, every
from ddp_audit.program.meaning import says
from ddp_audit.program.model import Guard, Loop, Node, Program
from ddp_audit.program.nodes import Backward, Forward, SyncFlag
from ddp_audit.program.values import MISSING, Alt, Const, Expr, Ext, Items, Made, Obj, Unknown, Value, World, evaluate, truth

_MOST_ATOMS = 5
_MOST_TRIALS = 6_000


@dataclass(frozen=True, slots=True, eq=False)
class Switch:
    """What can turn synchronisation off for one forward: it is off where bool(test) is `off`; always, where `test` is None.

    A flag that is assigned after the forward is read in the next pass of the loop around it, which is `carried` then; `first` is
    what the first pass reads, where an assignment before the loop says that.
    """

    test: Value | None
    off: bool
    place: SyncFlag | None  # the flag's assignment, None for a no_sync() block
    line: int
    text: str
    carried: Loop | None = None
    first: Value | None = None


def forwards_behind(program: Program, backward: Node, through: str | None = "wrapper") -> list[Forward]:
    """The forwards with gradients that a backward goes through."""
    found = [n for n in program.forwards_of(backward.target) if n.grad is not False]
    return [n for n in found if through is None or n.through == through]


def flags_of(program: Program, forward: Node) -> list[SyncFlag]:
    """Assignments of require_backward_grad_sync of the forward's wrapper, in order."""
    wrapper = forward.object
    return [n for n in program.of(SyncFlag) if wrapper is not None and n.object is not None and n.object.key == wrapper.key]


def late_flags(program: Program) -> list[tuple[SyncFlag, Forward, Backward]]:
    """Assignments of the flag between a wrapped forward and the backward that goes through it: (flag, forward, backward)."""
    found: list[tuple[SyncFlag, Forward, Backward]] = []
    for backward in program.of(Backward):
        for forward in forwards_behind(program, backward):
            for flag in flags_of(program, forward):
                if forward.number < flag.number < backward.number and flag.loops == backward.loops == forward.loops:
                    found.append((flag, forward, backward))
    return found


def arms_reducer_by_hand(program: Program, flag: Node) -> bool:
    """Whether the code around an assignment of the flag calls reducer.prepare_for_backward itself, as libraries do."""
    calls = calls_of(program, "prepare_for_backward", path=flag.span.path)
    return any(-15 <= call.line - flag.span.line <= 15 for call in calls)


def switches(program: Program, forward: Node) -> list[Switch]:
    """The no_sync() blocks around a forward, and the last assignment of the flag before it."""
    wrapper = forward.object
    found: list[Switch] = []
    for block in forward.no_sync:
        if block.wrapper is None or wrapper is None or block.wrapper.key == wrapper.key:
            text = program.line(block.span.path, block.span.line)
            found.append(Switch(block.test, block.polarity, None, block.span.line, text))
    flags = [n for n in flags_of(program, forward) if n.loops == forward.loops[: len(n.loops)]]
    before = [n for n in flags if n.number < forward.number]
    after = [n for n in flags if n.number > forward.number and n.loops]
    if after and len(after[-1].loops) > max((len(n.loops) for n in before), default=0):
        flag, loop = after[-1], after[-1].loops[-1]
        first = next((n.value for n in reversed(before) if n.loops == flag.loops[:-1]), None)
        text = program.line(flag.span.path, flag.span.line)
        found.append(Switch(flag.value, False, flag, flag.span.line, text, loop, first))
    elif before:
        flag = before[-1]
        found.append(Switch(flag.value, False, flag, flag.span.line, program.line(flag.span.path, flag.span.line)))
    return found


def is_off(found: list[Switch], world: World) -> bool | None:
    """Whether one of the switches is off; None where one is unknown and none is off."""
    answers = [
        True if s.test is None else _carried(s, world) if s.carried else _says(truth(opened(s.test), world), s.off) for s in found
    ]
    if True in answers:
        return True
    return None if None in answers else False


def _carried(switch: Switch, world: World) -> bool | None:
    """Whether a flag that the pass before has set is off in the pass of the loop that the supposition speaks of."""
    assert switch.test is not None and switch.carried is not None
    test, loop = opened(switch.test), switch.carried
    names = atoms(test)
    if names is None or any(not (name.startswith(("loop:", "option ")) or is_length(name)) for name in names):
        return None  # a counter may have been advanced since
    index = world.atoms.get(loop.leaf)
    if loop.leaf not in names:
        return _says(truth(test, world), switch.off)
    if not isinstance(index, int):
        return None
    if index == 0 and switch.first is not None:
        return _says(truth(opened(switch.first), world), switch.off)
    count = iterations(loop, world, set(world.atoms))
    if index == 0 and (count is None or count < 1):
        return None
    before = (index or count or 0) - 1
    return _says(truth(test, replace(world, atoms={**world.atoms, loop.leaf: before})), switch.off)


def carried_flags(program: Program) -> list[tuple[SyncFlag, Forward]]:
    """Assignments of the flag that a forward reads only in the next pass of the loop: (flag, forward)."""
    found: list[tuple[SyncFlag, Forward]] = []
    for forward in program.of(Forward):
        if forward.through == "wrapper" and forward.grad is not False:
            found += [(s.place, forward) for s in switches(program, forward) if s.carried is not None and s.place is not None]
    return found


def is_never_off(program: Program, flag: SyncFlag) -> bool:
    """Whether an assignment of the flag sets it to what is true at every position of the loops around it."""
    test = opened(flag.value)
    names = atoms(test)
    if names is None:
        return False
    for loop in flag.loops:
        if loop.count is not None and loop_atom(loop, names):
            names |= atoms(opened(loop.count)) or set()
    answers = []
    for supposed in suppositions(names, {f"option {name}": value.value for name, value in program.config.items()}):
        for world in (World(0, 2, 2, supposed), World(1, 2, 2, supposed)):
            counts = [(supposed[atom], iterations(loop, world, names)) for loop in flag.loops if (atom := loop_atom(loop, names))]
            if all(count is not None and index < count for index, count in counts):
                answers.append(truth(test, world))
    return bool(answers) and all(answer is True for answer in answers)


def _says(answer: bool | None, wanted: bool) -> bool | None:
    return None if answer is None else answer == wanted


# ---- what-if


def opened(value: Value) -> Value:
    """The value with each default that a user may override as an unknown of its own name."""
    match value:
        case Unknown(by=Made(name="builtins.len", args=(counted,))) if counted.text and value.text.isidentifier():
            return Unknown(text=f"len({counted.text})")  # `n = len(loader)`
        case Const(default=default, formula=formula) if default is not None and default.open:
            return Unknown(text=f"option {default.name}") if formula is None else opened(formula)
        case Expr(args=args) if args:
            return replace(value, args=tuple(opened(a) for a in args))
        case Items(items=items):
            return replace(value, items=tuple(opened(a) for a in items))
        case Alt(choice=Value() as choice, options=found):
            return replace(value, choice=opened(choice), options=tuple(map(opened, found)))
    return value


def atoms(value: Value) -> set[str] | None:
    """The names of what is unknown by itself in a value; None where something in it cannot be supposed."""
    match value:
        case Const():
            return set()
        case Unknown(by=Made(name="builtins.len", args=(counted,))) if counted.text and value.text.isidentifier():
            return {f"len({counted.text})"}
        case Unknown(text=text):
            return {text} if text else None
        case Expr(op=op, args=()):
            return {op} if op.startswith("loop:") else set()
        case Expr(args=args) | Items(items=args):
            parts = [atoms(a) for a in args]
            return None if None in parts else set().union(*(p for p in parts if p))
        case Alt(choice=Value() as choice, options=found):  # an object in it is there, whatever it is
            parts = [atoms(a) for a in (choice, *found) if not isinstance(a, (Obj, Ext))]
            return None if None in parts else set().union(*(p for p in parts if p))
    return None


def is_length(atom: str) -> bool:
    """Whether a name reads as the number of iterations of a loop."""
    return says(atom, "number-of-passes")


def suppositions(names: set[str], defaults: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Small values for every atom, in all combinations: positions from 0, lengths that no window divides, and their like."""
    ordered = sorted(names)
    if len(ordered) > _MOST_ATOMS:
        return
    domains = [_domain(name, defaults) for name in ordered]
    for count, chosen in enumerate(itertools.product(*domains)):
        if count >= _MOST_TRIALS:
            return
        yield dict(zip(ordered, chosen, strict=True))


def _domain(name: str, defaults: Mapping[str, Any]) -> list[Any]:
    if name.startswith("loop:"):
        return [3, 2, 4, 1, 0, 5]
    if is_length(name):
        return [5, 6, 3]
    if name in defaults and isinstance(defaults[name], (bool, str, type(None))):
        return [defaults[name]] + ([not defaults[name]] if isinstance(defaults[name], bool) else [])
    if name.startswith("option "):
        return [4, 2, 3, 8, 1]
    return [4, 2, 3, 1, 0, 5]


def loop_atom(loop: Loop, names: set[str]) -> str | None:
    """The atom that is the index of a loop, where the names hold it."""
    if loop.leaf in names:
        return loop.leaf
    for name in names:
        if name.startswith(f"loop:{loop.span.line:d}:") and int(name.rsplit(":", 1)[1]) + 1 >= loop.span.column:
            return name
    return None


def names_of_loops(program: Program, node: Node, names: Iterable[str]) -> dict[str, str]:
    """How the source calls the loop indices: by their first target, where it is one plain name."""
    found: dict[str, str] = {}
    for name in names:
        if name.startswith("loop:"):
            line = int(name.split(":")[1])
            loops = (n.target for n in code_within(program, node.span.path, line, line) if isinstance(n, (ast.For, ast.AsyncFor)))
            found[name] = next((n.id for target in loops for n in every(target) if isinstance(n, ast.Name)), "the index")
    return found


def iterations(loop: Loop, world: World, names: set[str]) -> int | None:
    """The number of iterations of a loop under a supposition, where it is computable."""
    if loop.count is not None:
        count = evaluate(opened(loop.count), world)
        if count is not MISSING and isinstance(count, int):
            return count
    for name in names:
        inner = name[4:-1] if name.startswith("len(") else ""
        if inner and inner in loop.text:
            count = world.atoms.get(name)
            return count if isinstance(count, int) else None
    return None


def passes(guards: tuple[Guard, ...], world: World) -> bool | None:
    """Whether all guards let a rank pass under a supposition; None where one is unknown and none stops it."""
    answers = [_says(truth(opened(g.test), world), g.polarity) for g in guards]
    if False in answers:
        return False
    return None if None in answers else True


__all__ = [
    "Switch", "arms_reducer_by_hand", "atoms", "carried_flags", "flags_of", "forwards_behind", "is_length", "is_never_off",
    "is_off", "iterations", "late_flags", "loop_atom", "names_of_loops", "opened", "passes", "suppositions", "switches",
]  # fmt: skip
