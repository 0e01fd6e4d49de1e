"""The statements of a script, run for one rank.

Conditions that are not known are taken by a policy that looks at the source alone, so that every rank takes them alike: an arm
that leaves by an error is not entered, nothing that is asked for by an unknown is there. Each such choice is noted.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, definitions, early, expressions, imports, patterns, totals, unpacking
from ddp_audit.explore.exact.acting import ENDS
from ddp_audit.explore.exact.arms import is_early_exit, preferred
from ddp_audit.explore.exact.iteration import Iteration
from ddp_audit.explore.exact.state import INFERRED, Frame, Limits
from ddp_audit.explore.exact.stride import Stride, passes_of
from ddp_audit.explore.exact.values import (
    BREAK,
    CONTINUE,
    RETURN,
    Class,
    Closed,
    Cut,
    Error,
    Gone,
    Instance,
    Lib,
    Raised,
    Scope,
    Unknown,
    describe,
)
from ddp_audit.program.lookup import canonical
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.source.files import SourceFile


MOST_IN_A_WINDOW = 32  # iterations after which a loop of unknown length may repeat itself


class Interpreter(Iteration):
    """The run of one rank."""

    __slots__ = ()

    # ---- running

    def run(self, entry: SourceFile) -> None:
        """Runs a script as `__main__`."""
        try:
            if self._comes_to_its_end(entry):
                self._leave()
        except Cut as cut:
            self.cut = cut.why
        except RecursionError:
            self.cut = "the nesting of its calls and expressions is too deep"
        except MemoryError:
            raise
        except Exception as failure:
            if os.environ.get("DDP_AUDIT_DEBUG"):
                raise
            place = place_of(self.frames[-1].source.path, self.frames[-1].line) if self.frames else entry.path
            self.cut = f"{type(failure).__name__} at {place} (an error in ddp-audit; DDP_AUDIT_DEBUG=1 shows where)"

    def _comes_to_its_end(self, entry: SourceFile) -> bool:
        """Runs the script. False where the process ends at once, without what is registered for its end."""
        try:
            self.load(entry, "__main__")
        except Raised as raised:
            self._inferred(raised)
            self.inferred = raised.inferred
            left = isinstance(raised.value, Error) and raised.value.name == "SystemExit" and _is_success(raised.value.args)
            self.raised = "" if left else describe(raised.value)
        except Gone as gone:
            self.raised = "" if _is_success((gone.code,)) else f"os._exit({gone.code})"
            return False
        return True

    def _inferred(self, raised: Raised) -> None:
        """Notes an exception that no statement of the program raises, where it changes the way."""
        if raised.inferred:
            self.doubt(INFERRED, f"{describe(raised.value)} is inferred")

    def _leave(self) -> None:
        for function, args, kwargs, (source, line) in reversed(self.at_exit):
            with contextlib.suppress(Raised, Cut), self.frame(source, "<module>"):
                self.frames[-1].line = line
                calls.call(self, function, args, kwargs)

    def load(self, source: SourceFile, name: str) -> Scope:
        """The scope of a file, run where it was not yet."""
        known = self.modules.get(source.abspath)
        if known is not None:
            return known
        scope = Scope({"__name__": name, "__file__": source.path, "__doc__": None}, source)
        self.modules[source.abspath] = scope
        self.frames.append(Frame(source, "<module>"))
        try:
            self.block(source.tree.body, scope)
        finally:
            self.frames.pop()
        return scope

    # ---- blocks

    def block(self, statements: list[ast.stmt], scope: Scope) -> str | None:
        """Runs statements; how they left: break, continue, return, or None where they did not."""
        around = len(self.guards)
        try:
            for statement in statements:
                self.tick()
                self.line = statement.lineno
                self.lines.add((scope.source.path, statement.lineno))
                left = self.statement(statement, scope)
                if left is not None:
                    return left
                if isinstance(statement, ast.If) and self.last_if is not None and is_early_exit(statement):
                    self.guards.append(self.last_if)  # what follows is reached by those that it did not send away
            return None
        finally:
            del self.guards[around:]

    def statement(self, node: ast.stmt, scope: Scope) -> str | None:
        """Runs one statement."""
        match node:
            case ast.Expr(value=value):
                if not isinstance(value, ast.Constant):
                    expressions.evaluate(self, value, scope)
            case ast.Assign(targets=targets, value=value):
                result = expressions.evaluate(self, value, scope)
                if scope.parent is None and isinstance(value, (ast.Constant, ast.UnaryOp)) and isinstance(targets[0], ast.Name):
                    result = self.configured(targets[0].id, result)
                for target in targets:
                    self.assign(target, result, scope)
            case ast.AugAssign():
                self._augmented(node, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    result = expressions.evaluate(self, value, scope)
                    if scope.parent is None and isinstance(value, ast.Constant) and isinstance(target, ast.Name):
                        result = self.configured(target.id, result)
                    self.assign(target, result, scope)
            case ast.If():
                return self._if(node, scope)
            case ast.For() | ast.AsyncFor():
                return self._for(node, scope)
            case ast.While():
                return self._while(node, scope)
            case ast.With() | ast.AsyncWith():
                return self._with(node.items, node.body, scope)
            case ast.Try():
                return self._try(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope.variables[node.name] = definitions.define(self, node, scope, None)
            case ast.ClassDef():
                made = definitions.define_class(self, node, scope)
                scope.variables[node.name] = made
                scope.variables[node.name] = definitions.decorated_class(self, node, made, scope)
            case ast.Return(value=value):
                self.result = None if value is None else expressions.evaluate(self, value, scope)
                return RETURN
            case ast.Raise():
                self._raise(node, scope)
            case ast.Break():
                return BREAK
            case ast.Continue():
                return CONTINUE
            case ast.Assert(test=test, msg=said):
                if not self.truth(expressions.evaluate(self, test, scope), test, True):
                    raise Raised(Error("AssertionError", () if said is None else (expressions.evaluate(self, said, scope),)))
            case ast.Global(names=names):
                scope.outer.update(names)
            case ast.Nonlocal(names=names):
                scope.enclosing.update(names)
            case ast.Import() | ast.ImportFrom():
                imports.bind(self, node, scope)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, scope)
            case ast.Match():
                return self._match(node, scope)
            case ast.Pass():
                return None
            case _:
                self.opaque(f"the statement {type(node).__name__}")
        return None

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """Run `a += b` and its like; a list grows in place."""
        left = expressions.evaluate(self, node.target, scope)
        right = expressions.evaluate(self, node.value, scope)
        if isinstance(left, list) and isinstance(node.op, ast.Add) and isinstance(right, (list, tuple)):
            result = self.fold(".extend", left, right) or left
        else:
            result = totals.in_place(self, node.op, left, right, expressions.binary(self, node.op, left, right))
        self.assign(node.target, result, scope)

    def configured(self, name: str, value: Any) -> Any:
        """A module's constant, or what the job sets it to."""
        override = self.overrides.get(name)
        if override is None or not isinstance(value, (int, float, str, bool)):
            return value
        return expressions.plain_override(override)

    def _if(self, node: ast.If, scope: Scope) -> str | None:
        asked = self.asked_early
        value = expressions.evaluate(self, node.test, scope)
        known = self.known_truth(value)
        if known is None:
            then, orelse = self._ends_run(node.body, scope), self._ends_run(node.orelse, scope)
            known = self.assume(node.test, orelse if then != orelse else preferred(node.test, node.body, node.orelse), value)
        taken = self.took(node.test, known)
        self.guards.append(taken)
        try:
            return self.block(node.body if known else node.orelse, scope)
        finally:
            self.guards.pop()
            self.last_if = taken
            early.left_alone(self, node.orelse if known else node.body, asked, scope)

    def _ends_run(self, statements: list[ast.stmt], scope: Scope) -> bool:
        """Whether a block ends in a call that ends the process."""
        match statements[-1:]:
            case [ast.Expr(value=ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name()) as function))]:
                return isinstance(found := expressions.evaluate(self, function, scope), Lib) and found.name in ENDS
        return False

    def _for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> str | None:
        over = expressions.evaluate(self, node.iter, scope)
        left: list[str | None] = [None]
        self.windows.append((self._window(node, scope), node.lineno))
        total = passes_of(over)
        stride = Stride(self, node, scope, total) if total else None

        def body(element: Any) -> bool:
            if stride is not None and stride.skips(element):
                return True
            self.tick()
            self.took(node.iter, True)
            self.assign(node.target, element, scope)
            gone = self.block(node.body, scope)
            if gone in (BREAK, RETURN):
                left[0] = gone
                return False
            if stride is not None:
                stride.played()
            return True

        self.at(node.iter)
        try:
            self.each(over, body, node.iter)
            if left[0] is None:
                self.took(node.iter, False)
        finally:
            self.windows.pop()
            if stride is not None:
                stride.left()
        if left[0] == RETURN:
            return RETURN
        return self.block(node.orelse, scope) if left[0] is None and node.orelse else None

    def _while(self, node: ast.While, scope: Scope) -> str | None:
        taken, start, most = 0, len(self.events), 0
        while True:
            self.tick()
            value = expressions.evaluate(self, node.test, scope)
            known = self.known_truth(value)
            if known is None:
                taken += 1
                most = most or self.enough(self._window(node, scope))
                known = taken <= most
                self.assume(node.test, True, value, for_good=False)
                if not known:
                    self.bound(self.ran(most, place_of(scope.source.path, node.lineno)), start, (scope.source.path, node.lineno))
            self.took(node.test, known)
            if not known:
                return self.block(node.orelse, scope) if node.orelse else None
            gone = self.block(node.body, scope)
            if gone == BREAK:
                return None
            if gone == RETURN:
                return RETURN

    def _window(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> int:
        """After how many iterations a loop repeats itself, by the whole numbers that its body takes a remainder of; else 1."""
        if id(node) not in self.remainders:
            self.remainders[id(node)] = scope.source.fact("remainders", node, _remainders)
        window = 1
        for part in self.remainders[id(node)]:
            try:
                value = expressions.evaluate(self, part, scope)
            except (Raised, Cut):
                continue
            if type(value) is int and 1 < value <= MOST_IN_A_WINDOW:
                window = math.lcm(window, value) if math.lcm(window, value) <= MOST_IN_A_WINDOW else max(window, value)
        return window

    def _with(self, items: list[ast.withitem], body: list[ast.stmt], scope: Scope) -> str | None:
        if not items:
            return self.block(body, scope)
        entry, rest = items[0], items[1:]
        context = expressions.evaluate(self, entry.context_expr, scope)
        self.at(entry.context_expr)
        left: list[str | None] = [None]
        result: Any = None

        def inside(value: Any) -> None:
            nonlocal result
            if entry.optional_vars is not None:
                self.assign(entry.optional_vars, value, scope)
            left[0] = self._with(rest, body, scope)
            result = self.result

        self.within(context, inside)
        if left[0] == RETURN:
            self.result = result  # leaving the context may have run functions with results of their own
        return left[0]

    def _try(self, node: ast.Try, scope: Scope) -> str | None:
        left: str | None = None
        try:
            try:
                self.tries.append((node, scope))
                try:
                    left = self.block(node.body, scope)
                finally:
                    self.tries.pop()
                if left is None and node.orelse:
                    left = self.block(node.orelse, scope)
            except Raised as raised:
                self._inferred(raised)
                handler = self._handler(node, raised, scope)
                if handler is None:
                    raise
                if handler.name:
                    scope.variables[handler.name] = raised.value
                self.handling.append(raised)
                try:
                    left = self.block(handler.body, scope)
                finally:
                    self.handling.pop()
        except (Raised, Closed):
            saved = self.result
            if self.block(node.finalbody, scope) is not None:
                return RETURN
            self.result = saved
            raise
        saved = self.result
        gone = self.block(node.finalbody, scope)
        if gone is None:
            self.result = saved
        return gone or left

    def catches(self, raised: Raised) -> bool:
        """Whether a try statement around what runs catches an exception."""
        return any(self._handler(node, raised, scope) is not None for node, scope in self.tries)

    def _handler(self, node: ast.Try, raised: Raised, scope: Scope) -> ast.ExceptHandler | None:
        for handler in node.handlers:
            if handler.type is None:
                return handler
            kinds = expressions.evaluate(self, handler.type, scope)
            if any(calls.matches(raised.value, kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,))):
                return handler
        return None

    def _raise(self, node: ast.Raise, scope: Scope) -> None:
        if node.exc is None:
            raise self.handling[-1] if self.handling else Raised(Error("RuntimeError"))
        value = expressions.evaluate(self, node.exc, scope)
        if isinstance(value, (Lib, Class)):
            value = calls.call(self, value, [], {})
        raise Raised(value if isinstance(value, (Error, Instance)) else Error("Exception"))

    def _match(self, node: ast.Match, scope: Scope) -> str | None:
        subject = expressions.evaluate(self, node.subject, scope)
        for case in node.cases:
            known = patterns.fits(self, case.pattern, subject, scope)
            if known is None:
                known = self.assume(node.subject, case is node.cases[-1], subject, for_good=False)
            if known and (case.guard is None or self.truth(expressions.evaluate(self, case.guard, scope), case.guard)):
                return self.block(case.body, scope)
        return None

    # ---- names

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Binds an assignment target."""
        match target:
            case ast.Name(id=name):
                self.bind(name, value, scope)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for element, part in zip(elts, unpacking.parts(self, elts, value), strict=False):
                    self.assign(element.value if isinstance(element, ast.Starred) else element, part, scope)
            case ast.Attribute(value=owner, attr=attr):
                calls.set_attribute(self, expressions.evaluate(self, owner, scope), attr, value)
            case ast.Subscript(value=owner, slice=index):
                container = expressions.evaluate(self, owner, scope)
                expressions.set_item(self, container, expressions.evaluate(self, index, scope), value)

    def bind(self, name: str, value: Any, scope: Scope) -> None:
        """Sets a variable where its scope says that it lives."""
        if name in scope.outer:
            scope = scope.module
        elif name in scope.enclosing:
            holder = scope.parent
            while holder is not None and name not in holder.variables:
                holder = holder.parent
            scope = holder or scope
        scope.variables[name] = value

    def _delete(self, target: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.variables.pop(target.id, None)
        elif isinstance(target, ast.Subscript):
            container = expressions.evaluate(self, target.value, scope)
            calls.delete_item(self, container, expressions.evaluate(self, target.slice, scope))
        elif isinstance(target, ast.Attribute):
            calls.delete_attribute(self, expressions.evaluate(self, target.value, scope), target.attr)

    def module_named(self, name: str) -> Any:
        """The module of a full name: a file of the project, or a library."""
        source = self.project.resolve_import(name, 0, self.frames[-1].source)
        return Lib(canonical(name)) if source is None else self.load(source, name)


def _is_success(code: tuple[Any, ...]) -> bool:
    """Whether an exit code is that of a process that did its work."""
    return not code or code[0] is None or code[0] == 0 or isinstance(code[0], Unknown)


__all__ = ["BREAK", "CONTINUE", "RETURN", "Frame", "Interpreter", "Limits"]


def _remainders(node: ast.AST) -> list[ast.expr]:
    """What is divided by where a piece of code takes a remainder, as far as that is a name or a number."""
    parts = [inner.right for inner in ast.walk(node) if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod)]
    return [part for part in parts if isinstance(part, (ast.Constant, ast.Name, ast.Attribute))]
