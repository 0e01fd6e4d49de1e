"""Passes of a loop that are not played, because each of them would do what the one before it did.

A loop over many elements that sends nothing and steps nothing, such as an evaluation, is played for its first three passes and its
last one. The passes between are skipped where that changes nothing: the third pass left everything as it had found it, counters and
lists that grow at their end aside, and no statement that it ran reads one of these but to advance it, to print it, or as the index
of an assignment. Each skipped pass would then take the same way. What it adds is added: its events, its answers to conditions, what
it counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.events import FORWARD
from ddp_audit.explore.exact import expressions
from ddp_audit.explore.exact.heap import Counter, Grown, Picture, TooDifferent, differences, picture
from ddp_audit.explore.exact.state import ALWAYS, TICKS_OF_AN_EVENT, Taken
from ddp_audit.explore.exact.values import PLAIN, Instance, Lib, Module, Raised, Scope, Tensor, Unknown
from ddp_audit.machine.ddp import Ddp

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_FEWEST = 8  # passes of a loop that is looked at
_WATCHED = 2  # the pass, counted from 0, that has to leave everything as it was
_MOST_ANSWERS = 50_000  # answers to conditions that are filled in for skipped passes
_SKIPS_OF_A_TICK = 16
_COUNTS = ("ticks", "made", "work", "losses", "effects", "modes", "works", "asked_early")
_HELD = (
    "overrides", "grad", "module_depth", "wrappers", "settings", "early_uses", "summed_again", "initialized", "modules",
    "groups", "at_exit", "environment", "joins", "rebuilds", "grouped", "optimizers", "options", "wanted", "inferred", "astray",
    "uncertain", "steps", "collectives", "handling",
)  # fmt: skip
_NOTED = ("assumptions", "bounds", "notes", "doubts", "built", "lines", "early_uses", "too_large", "generators")  # that only grow
_INDIRECT = frozenset({"globals", "locals", "vars", "eval", "exec", "getattr", "setattr", "delattr", "dir"})
_PASSED_ON = (ast.FormattedValue, ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Tuple)


class Stride:
    """The passes of one loop under way."""

    def __init__(self, it: Interpreter, node: ast.For | ast.AsyncFor, scope: Scope, total: int) -> None:
        self._it, self._node, self._scope, self._total = it, node, scope, total
        self._number = 0  # of the pass that comes next
        self._off = not it.limits.strides
        self._on = False
        self._before: Picture | None = None
        self._counters: list[Counter] = []
        self._grown: list[Grown] = []
        self._skipped = 0
        self._element: Any = None

    def skips(self, element: Any) -> bool:
        """Whether the next pass, with this element, is not played. Otherwise what the skipped ones add is added now."""
        number, self._number = self._number, self._number + 1
        if self._off:
            return False
        if self._on and number < self._total - 1 and self._is_like(element):
            self._skipped += 1
            if not self._skipped % _SKIPS_OF_A_TICK:
                self._it.tick()
            return True
        if self._on:
            self._off = True
            self._make_up()
        elif number == _WATCHED:
            self._element = element
            self._watch()
        self._start = len(self._it.events)
        return False

    def played(self) -> None:
        """A pass was played and did not leave the loop."""
        if self._off or self._on:
            return
        events = self._it.events[self._start :]
        if self._number > 1 and any(event.kind != FORWARD for event in events):  # the first may end what came before
            self._off = True
        elif self._before is not None:
            self._on = self._is_steady()
            self._off = not self._on
            self.left()

    def left(self) -> None:
        """The loop is left, by whatever way."""
        if self._before is not None:
            self._before = None
            self._it.running.pop()

    # ---- the watched pass

    def _watch(self) -> None:
        it = self._it
        try:
            self._before = self._picture()
        except TooDifferent:
            self._off = True
            return
        self._counted = {name: getattr(it, name) for name in _COUNTS}
        self._noted = {name: len(getattr(it, name)) for name in _NOTED}
        self._visits, self._asked, self._answered = dict(it.visits), dict(it.asked), len(it.answers)
        self._functions: set[ast.AST] = set()
        it.running.append(self._functions)

    def _picture(self) -> Picture:
        it = self._it
        roots = [(("state", name), getattr(it, name)) for name in _HELD]
        return picture([*roots, (("state", "scope"), self._scope), (("state", "frames"), len(it.frames))], [it])

    def _is_steady(self) -> bool:
        it = self._it
        assert self._before is not None
        if any(len(getattr(it, name)) != size for name, size in self._noted.items()):
            return False
        self._times = {key: count - self._asked.get(key, 0) for key, count in it.asked.items() if count != self._asked.get(key, 0)}
        if any(it.contrary.get(key, ALWAYS) != ALWAYS for key in self._times):
            return False
        try:
            self._counters, self._grown = differences(self._before, self._picture())
        except TooDifferent:
            return False
        fields = [c for c in self._counters if not _is_of_program(c)]
        if not all(isinstance(c.owner, Ddp) and c.label == ("field", "_forwards") for c in fields):
            return False
        held = {label for grown in self._grown for label in grown.labels}
        added = [value for grown in self._grown for value in grown.added if id(value) not in grown.old]
        if any(kind not in ("variable", "attribute") for kind, _ in held) or not all(map(_is_simple, added)):
            return False
        changed = {c.label for c in self._counters if _is_of_program(c)} | held
        uses = _Uses(it, self._scope, changed, set(_targets(self._node.target)))
        if not all(uses.are_harmless(tree) for tree in (*self._node.body, *self._functions)):
            return False
        self._note_pass()
        return True

    def _note_pass(self) -> None:
        """What a skipped pass adds."""
        it = self._it
        self._counts = {name: getattr(it, name) - before for name, before in self._counted.items()}
        self._turns = {node: now - self._visits.get(node, 0) for node, now in it.visits.items() if now != self._visits.get(node, 0)}
        self._events = it.events[self._start :]
        new = list(it.answers.items())[self._answered :]
        self._answers = [(key, answer, it.moments[key] - self._start) for key, answer in new]
        self._keys = {key for key, _ in new}
        self._each: dict[tuple[str, int, str], int] = {}
        for key, *_ in self._answers:
            self._each[key[:3]] = self._each.get(key[:3], 0) + 1

    def _is_like(self, element: Any) -> bool:
        """Whether an element is like that of the watched pass, or a number where that was one and it is not read."""
        names = {label[1] for c in self._counters if (label := c.label)[0] == "variable"}
        if type(element) is int and type(self._element) is int:
            return element == self._element or (isinstance(self._node.target, ast.Name) and self._node.target.id in names)
        return element is self._element and isinstance(element, (*PLAIN, Tensor, Unknown))

    # ---- the skipped passes

    def _make_up(self) -> None:
        """Adds what the skipped passes would have added. Raises Cut where that is too much."""
        it, passes = self._it, self._skipped
        fill = len(self._answers) * passes <= _MOST_ANSWERS
        for turn in range(1, passes + 1) if fill or self._events else ():
            start = len(it.events)
            for (path, line, text, count), answer, moment in self._answers if fill else ():
                later = path, line, text, count + turn * self._each[path, line, text]
                it.answers[later], it.moments[later] = answer, start + moment
            it.events += [self._again(event, turn) for event in self._events]
            it.ticks += TICKS_OF_AN_EVENT * len(self._events)
            it.within_ticks()
        for name, by in self._counts.items():
            if name != "ticks":
                setattr(it, name, getattr(it, name) + passes * by)
        for node, by in self._turns.items():
            it.visits[node] += passes * by
        for key, by in self._times.items():
            it.asked[key] += passes * by
        targets = set(_targets(self._node.target))
        for counter in self._counters:
            _advance(counter, passes, targets)
        it.makes(passes * sum(len(grown.added) for grown in self._grown))
        for _ in range(passes) if self._grown else ():
            copies: dict[int, Any] = {}  # what one pass adds to two lists is one thing
            for grown in self._grown:
                for value in grown.added:
                    own = (
                        value
                        if isinstance(value, PLAIN) or id(value) in grown.old
                        else copies.setdefault(id(value), replace(value))
                    )
                    grown.held.append(own)

    def _again(self, event: Any, turn: int) -> Any:
        guards = event.detail.get("guards")
        if not guards:
            return event
        shifted = tuple(self._shifted(taken, turn) for taken in guards)
        return replace(event, detail={**event.detail, "guards": shifted})

    def _shifted(self, taken: Taken, turn: int) -> Taken:
        if taken.key not in self._keys:
            return taken
        return replace(taken, count=taken.count + turn * self._each[taken.key[:3]])


def _is_of_program(counter: Counter) -> bool:
    """Whether a counter is a variable, or an attribute of an object, of the program."""
    return isinstance(counter.owner, (Scope, Instance, Module)) and counter.label[0] in ("variable", "attribute")


def _advance(counter: Counter, passes: int, targets: set[str]) -> None:
    kind, name = counter.label
    if kind == "variable":
        if name not in targets:
            counter.owner.variables[name] += passes * counter.by
    elif kind == "attribute":
        counter.owner.attrs[name] += passes * counter.by
    else:
        setattr(counter.owner, name, getattr(counter.owner, name) + passes * counter.by)


def _is_simple(value: Any) -> bool:
    """Whether a copy of a value stands for one that another pass made."""
    if isinstance(value, Tensor):
        return not value.deps and value.holder is None
    return isinstance(value, PLAIN) or (type(value) is Unknown and value.total is None)


def _targets(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


class _Uses:
    """How the statements of a pass use what changes from pass to pass: the names of variables and of attributes."""

    def __init__(self, it: Interpreter, scope: Scope, changed: Iterable[tuple[str, Any]], targets: set[str]) -> None:
        self._it, self._scope, self._targets = it, scope, targets
        self._variables = {name for kind, name in changed if kind == "variable"}
        self._attributes = {name for kind, name in changed if kind == "attribute"}
        self._parents: dict[ast.AST, ast.AST] = {}

    def are_harmless(self, tree: ast.AST) -> bool:
        """Whether nothing in a tree reads one but to advance it, to print it or to put something at its place."""
        own = _bound_in(tree) if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else frozenset()
        nodes = list(ast.walk(tree))
        for node in nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
        return all(self._is_harmless(node, own) for node in nodes)

    def _is_harmless(self, node: ast.AST, own: frozenset[str]) -> bool:
        match node:
            case ast.Name(id=name) if name in _INDIRECT:
                return False
            case ast.Attribute(attr="__dict__"):
                return False
            case ast.Name(id=name, ctx=context) if name in self._variables and name not in own:
                return self._is_load(node) if isinstance(context, ast.Load) else self._is_advance(node, name in self._targets)
            case ast.Attribute(attr=name, ctx=context) if name in self._attributes:
                return self._is_load(node) if isinstance(context, ast.Load) else self._is_advance(node, False)
        return True

    def _is_advance(self, node: ast.AST, is_target: bool) -> bool:
        """Whether a thing that is set is advanced by something, or is what the loop itself sets."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.AugAssign):
            return isinstance(parent.op, (ast.Add, ast.Sub)) and not is_target
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.value, ast.BinOp):
            return isinstance(parent.value.op, (ast.Add, ast.Sub)) and ast.unparse(parent.value.left) == ast.unparse(node)
        return False

    def _is_load(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        match parent:
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left) if left is node:
                above = self._parents.get(parent)
                if isinstance(above, ast.Assign) and [ast.unparse(t) for t in above.targets] == [ast.unparse(node)]:
                    return True
            case ast.Attribute(attr="append") if isinstance(call := self._parents.get(parent), ast.Call) and call.func is parent:
                return isinstance(self._parents.get(call), ast.Expr)
            case ast.Subscript(ctx=ast.Store(), slice=index, value=ast.Name(id=name)) if index is node:
                return isinstance(self._scope.variables.get(name), (Tensor, Unknown))
        inner = node
        while parent is not None and isinstance(parent, _PASSED_ON):
            inner, parent = parent, self._parents.get(parent)
        return isinstance(parent, ast.Call) and inner in parent.args and self._is_print(parent)

    def _is_print(self, call: ast.Call) -> bool:
        """Whether a call prints, as a statement of its own."""
        if not isinstance(self._parents.get(call), ast.Expr) or not isinstance(call.func, ast.Name):
            return False
        try:
            return bool(expressions.evaluate(self._it, call.func, self._scope) == Lib("builtins.print"))
        except Raised:
            return False


def _bound_in(tree: ast.AST) -> frozenset[str]:
    """The names that belong to a function itself."""
    assert isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    spec = tree.args
    found = {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg) if a is not None}
    nodes = list(ast.walk(tree))
    outer = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    found |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(found - outer)


def passes_of(over: Any) -> int:
    """How many passes a loop over something known has that is worth a look; 0 where it has fewer."""
    size = len(over) if isinstance(over, (list, tuple, range)) else 0
    return size if size >= _FEWEST else 0


__all__ = ["Stride", "passes_of"]
