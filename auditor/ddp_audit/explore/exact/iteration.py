"""Iteration and contexts in an interpreted run: for loops over anything, generator functions, context managers."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ddp_audit.explore.exact import calls, containers, enums, generators, tensors, training
from ddp_audit.explore.exact.contents import first_unknown, is_local, is_quiet, is_unknown, unknown
from ddp_audit.explore.exact.state import INFERRED, State
from ddp_audit.explore.exact.values import (
    MISSING,
    Class,
    Context,
    Error,
    Function,
    Generating,
    Instance,
    Lib,
    Method,
    Module,
    Raised,
    Several,
    Tensor,
    Unknown,
    describe,
)
from ddp_audit.folding import MOST_ITEMS, TooLarge, check_key

_IN_A_STATEMENT = 64  # elements that count as a statement where a value is listed
MOST_YIELDED = 256  # elements taken from a generator function at once


class Measured:
    """The elements of a value. `whole` says, once they were asked for, whether their number is that of a real run."""

    def __init__(self, it: Iteration, over: Any, node: ast.AST | None) -> None:
        self.whole = True
        self.over = over
        self._it, self._node = it, node

    def __iter__(self) -> Iterator[Any]:
        elements = self._it.iterate(self.over, self._node)
        while True:
            before = self._it.shortened
            element = next(elements, _END)
            self.whole = self.whole and self._it.shortened == before
            if element is _END:
                return
            yield element


def several(elements: list[Any], *sources: Any) -> Several:
    """The list that some elements stand for whose number is not known."""
    element = elements[0] if elements else unknown(*sources, why="an element")
    root = first_unknown(*sources, element)
    return Several("a list", is_local(*sources, element), quiet=is_quiet(element), source=root, element=element)


_END = object()


class Iteration(State):
    """Elements of values, and blocks inside contexts."""

    __slots__ = ()

    def each(self, over: Any, body: Callable[[Any], bool], node: ast.AST) -> None:
        """Runs `body` on each element until it says False; a generator function runs in step with it."""
        if isinstance(over, Generating) and isinstance(node, ast.Call):  # nobody else can ask it
            calls.generate(self.whole, over, body)
            return
        for element in self.iterate(over, node):
            if not body(element):
                return

    def iterate(self, over: Any, node: ast.AST | None = None) -> Iterator[Any]:
        """The elements of a value; a few unknown ones where they are not known."""

        if isinstance(over, (list, tuple, range, dict, str, bytes)):
            if isinstance(over, (list, tuple)):
                yield from list(over)
            else:
                yield from over
        elif isinstance(over, (set, frozenset)):
            if len(over) > 1 and not all(isinstance(element, int) for element in over):
                self.opaque("the order of a set")  # the hashes of texts differ between processes
            yield from sorted(over, key=repr)
        elif isinstance(over, Generating):
            yield from generators.elements(self.whole, over)
        elif isinstance(over, (Instance, Module)):
            yield from self._iterate_object(over, node)
        elif isinstance(over, Tensor):
            if over.shape:
                for _ in range(over.shape[0]):
                    yield tensors.like(self.whole, over, shape=over.shape[1:])
            else:
                yield from self.some(tensors.like(self.whole, over, shape=None), node)
        elif hasattr(over, "elements"):
            yield from over.elements(self.whole)
        elif isinstance(over, training.Stream):
            yield from over.rest(self.whole)
        elif isinstance(over, Class) and over.members:
            yield from enums.members(over)
        elif isinstance(over, Several):
            yield from self.some(over.element, node)
        else:
            yield from self.some(unknown(over, why="an element"), node)

    def measured(self, over: Any, node: ast.AST | None = None) -> Measured:
        """The elements of a value, and whether they are as many as there are."""
        return Measured(self, over, node)

    def listed(self, over: Any) -> list[Any] | Unknown:
        """The elements of a value as a list; an unknown where there are more than one may hold. Counts as a part of a statement."""
        found: list[Any] = []
        elements = self.measured(over)
        for element in elements:
            if len(found) >= MOST_ITEMS:
                return self.refused(f"a container of more than {MOST_ITEMS:,} elements", over)
            found.append(element)
            if not len(found) % _IN_A_STATEMENT:
                self.tick()
        self.makes(len(found))
        return found if elements.whole else several(found, over)

    def hashed(self, kind: Any, items: list[Any]) -> Any:
        """A set of elements or a dict of pairs; an unknown where a key is one, or one that is too large or cannot be a key."""
        try:
            keys = [key for key, _ in items] if kind is dict else items
            if any(map(is_unknown, keys)):
                return unknown(items)
            for key in keys:
                check_key(key)
            return kind(items)
        except TooLarge as reason:
            return self.refused(str(reason), *items)
        except (TypeError, ValueError):  # no pair, or a key that cannot be one
            return unknown(items)

    def _iterate_object(self, over: Instance | Module, node: ast.AST | None) -> Iterator[Any]:
        cls = over.cls
        if isinstance(over, Module) and not isinstance(cls, Class):
            yield from containers.iterated(over)
            return
        method = cls.find("__iter__") if isinstance(cls, Class) else MISSING
        if isinstance(method, Function):
            made = calls.call(self.whole, Method(method, over), [], {})
            if made is not over:
                yield from self.iterate(made, node)
                return
            following = cls.find("__next__")
            while isinstance(following, Function):
                try:
                    element = calls.call(self.whole, Method(following, over), [], {})
                except Raised as raised:
                    if isinstance(raised.value, Error) and raised.value.name == "StopIteration":
                        return
                    raise
                yield element
        elif isinstance(cls, Class) and isinstance(cls.find("__getitem__"), Function):
            size = calls.length(self.whole, over)
            if isinstance(size, int):
                for index in range(size):
                    yield calls.call(self.whole, Method(cls.find("__getitem__"), over), [index], {})
                return
            yield from self.some(Unknown("an element", True), node)
        elif isinstance(over, Module):
            yield from containers.iterated(over)
        else:
            yield from self.some(Unknown("an element", True), node)

    def some(self, element: Any, node: ast.AST | None) -> Iterator[Any]:
        """A few elements of something whose length is not known."""
        start = len(self.events)
        self.losses += 1
        self.shortened += 1
        window, line = self.windows[-1] if self.windows else (1, self.frames[-1].line)
        times = self.enough(window)
        for _ in range(times):
            yield element
        place = self.frames[-1].source.path, getattr(node, "lineno", line)
        self.bound(self.ran(times, f"{place[0]}:{place[1]}"), start, place)

    def registered(self) -> None:
        """Parameters or modules were added to a module, or replaced."""
        training.changed(self.whole)

    def exhaust(self, values: Iterable[Any]) -> None:
        """Runs the generators among the arguments of a call that is not followed, which may ask them for all they have."""
        for value in values:
            if isinstance(value, Generating):
                for number, _ in enumerate(generators.elements(self.whole, value)):
                    if number == MOST_YIELDED:
                        self.bound(f"a generator function was asked for {MOST_YIELDED} elements at once")
                        break

    def within(self, context: Any, inside: Callable[[Any], None]) -> None:
        """Runs something inside a context manager."""
        if isinstance(context, Generating):
            done: list[bool] = []

            def once(value: Any) -> bool:
                if not done:
                    done.append(True)
                    inside(value)
                return True

            calls.generate(self.whole, context, once)
        elif isinstance(context, Context):
            before = self.grad
            try:
                if context.grad is not None:
                    self.grad = context.grad
                value = context.value if context.enter is None else context.enter()
                inside(value)
            except Raised as raised:
                if raised.inferred:
                    self.doubt(INFERRED, f"{describe(raised.value)} is inferred")
                if not any(calls.matches(raised.value, kind) for kind in context.suppressed):
                    raise
            finally:
                self.grad = before
                if context.leave is not None:
                    context.leave()
        elif isinstance(context, (Instance, Module)) and isinstance(context.cls, Class):
            self._within_object(context, inside)
        else:
            inside(context)

    def _within_object(self, context: Any, inside: Callable[[Any], None]) -> None:
        enter, leave = context.cls.find("__enter__"), context.cls.find("__exit__")
        value = calls.call(self.whole, Method(enter, context), [], {}) if isinstance(enter, Function) else context
        try:
            inside(value)
        except Raised as raised:
            told = [_kind_of(raised.value), raised.value, unknown()]
            swallowed = calls.call(self.whole, Method(leave, context), told, {}) if isinstance(leave, Function) else None
            if self.known_truth(swallowed) is None:
                self.whole.bound("whether a context manager lets an exception pass is not known")
            if self.known_truth(swallowed) is not True:
                raise
            return
        if isinstance(leave, Function):
            calls.call(self.whole, Method(leave, context), [None, None, None], {})


def _kind_of(value: Any) -> Any:
    """The class of an exception, as the program names it."""
    if isinstance(value, Instance):
        return value.cls
    is_known = isinstance(value, Error) and isinstance(getattr(builtins, value.name, None), type)
    return Lib(f"builtins.{value.name}") if is_known else unknown(value)
