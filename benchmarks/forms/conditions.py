"""The shape of a condition: negated, walrus, match, early exit, ternary statement, nested, chained, De Morgan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst
from libcst import matchers as m

from forms.form import Form, Rewriter, Statement, as_statements, block, bound_in, expr, flat, holding, jumps, of, stmt
from forms.holders import Ifs

Done = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]
SPACE = cst.SimpleWhitespace(" ")


def negation(text: str) -> cst.BaseExpression:
    """The negation of a condition."""
    return expr(f"not ({text})")


def otherwise(node: cst.If) -> list[Statement] | None:
    """The statements of the `else` of an `if`, [] without one, None for an `elif`."""
    if node.orelse is None:
        return []
    return as_statements(node.orelse.body) if isinstance(node.orelse, cst.Else) else None


class Negated(Ifs):
    """`if not c: .. else: ..`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """The two arms in the other order."""
        no = otherwise(updated)
        if no is None:
            return updated
        orelse = cst.Else(body=block(as_statements(updated.body)))
        return updated.with_changes(
            test=negation(self.code(updated.test)), body=block(no or [stmt("pass")]), orelse=orelse, whitespace_before_test=SPACE
        )


class TwiceNegated(Ifs):
    """`if not (not c)`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """The same `if` with another test."""
        return updated.with_changes(test=expr(f"not (not ({self.code(updated.test)}))"), whitespace_before_test=SPACE)


class Walrus(Ifs):
    """`if (due := c)`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """The same `if` with another test."""
        return updated.with_changes(
            test=expr(f"({self.fresh('due')} := ({self.code(updated.test)}))"), whitespace_before_test=SPACE
        )


class Match(Ifs):
    """`match bool(c): case True: .. case _: ..`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """A match statement."""
        no = otherwise(updated)
        if no is None:
            return updated
        shape = stmt(f"match bool({self.code(updated.test)}):\n    case True:\n        pass\n    case _:\n        pass\n")
        assert isinstance(shape, cst.Match)
        yes, rest = shape.cases
        cases = [yes.with_changes(body=block(as_statements(updated.body))), rest.with_changes(body=block(no or [stmt("pass")]))]
        return shape.with_changes(cases=cases, leading_lines=updated.leading_lines)


class MatchValue(Ifs):
    """`match x: case 0:` for `if x == 0`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """A match statement on the value that is compared."""
        no, test = otherwise(updated), updated.test
        literal = m.Integer() | m.SimpleString()
        if no is None or not m.matches(test, m.Comparison(comparisons=[m.ComparisonTarget(m.Equal(), literal)])):
            return updated
        assert isinstance(test, cst.Comparison)
        value = self.code(test.comparisons[0].comparator)
        shape = stmt(f"match {self.code(test.left)}:\n    case {value}:\n        pass\n    case _:\n        pass\n")
        assert isinstance(shape, cst.Match)
        yes, rest = shape.cases
        cases = [yes.with_changes(body=block(as_statements(updated.body))), rest.with_changes(body=block(no or [stmt("pass")]))]
        return shape.with_changes(cases=cases, leading_lines=updated.leading_lines)


class WhileOnce(Ifs):
    """`while c: ..; break`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """A loop of one pass at most."""
        body = as_statements(updated.body)
        if updated.orelse is not None or jumps(body) & {"break", "continue"}:
            return updated
        return holding(f"while {self.code(updated.test)}:\n    pass\n", [*body, stmt("break")])


class Nested(Ifs):
    """`if a: if b:` for `if a and b`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """One `if` in another."""
        test = updated.test
        if updated.orelse is not None or not isinstance(test, cst.BooleanOperation) or not isinstance(test.operator, cst.And):
            return updated
        inner = updated.with_changes(
            test=expr(f"({self.code(test.right)})"),
            whitespace_before_test=SPACE,
            body=block(as_statements(updated.body)),
            leading_lines=(),
        )
        return updated.with_changes(test=expr(f"({self.code(test.left)})"), whitespace_before_test=SPACE, body=block([inner]))


class Merged(Ifs):
    """`if a and b` for `if a: if b:`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """One `if` with both conditions."""
        body = as_statements(updated.body)
        inner = body[0]
        if updated.orelse is not None or len(body) > 1 or not isinstance(inner, cst.If) or inner.orelse is not None:
            return updated
        both = expr(f"({self.code(updated.test)}) and ({self.code(inner.test)})")
        return updated.with_changes(test=both, body=inner.body, whitespace_before_test=SPACE)


class DeMorgan(Ifs):
    """`not (not a or not b)` for `a and b`, and the other way round."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """The same `if` with another test."""
        test = updated.test
        if not isinstance(test, cst.BooleanOperation):
            return updated
        word = "or" if isinstance(test.operator, cst.And) else "and"
        text = f"not (not ({self.code(test.left)}) {word} not ({self.code(test.right)}))"
        return updated.with_changes(test=expr(text), whitespace_before_test=SPACE)


class Elif(Ifs):
    """`else: if` for `elif`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """The second `if` inside of an else."""
        if not isinstance(updated.orelse, cst.If):
            return updated
        return updated.with_changes(orelse=cst.Else(body=block([updated.orelse.with_changes(leading_lines=())])))


class Ternary(Ifs):
    """`x = a if c else b` for an `if` with two assignments, and `f() if c else None` for one with a call."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """One statement."""
        no, yes = otherwise(updated), as_statements(updated.body)
        if no is None or len(yes) != 1 or len(no) > 1:
            return updated
        call = m.SimpleStatementLine(body=[m.Expr(m.Call())])
        assign = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())])])
        test = self.code(updated.test)
        if m.matches(yes[0], call) and all(m.matches(one, call) for one in no):
            other = self.code(no[0].body[0].value) if no else "None"  # type: ignore[union-attr]
            return flat(updated, stmt(f"({self.code(yes[0].body[0].value)}) if ({test}) else ({other})"))  # type: ignore[union-attr]
        if no and m.matches(yes[0], assign) and m.matches(no[0], assign):
            first, second = yes[0].body[0], no[0].body[0]  # type: ignore[union-attr]
            target = self.code(first.targets[0].target)  # type: ignore[union-attr]
            if target == self.code(second.targets[0].target):  # type: ignore[union-attr]
                return flat(updated, stmt(f"{target} = ({self.code(first.value)}) if ({test}) else ({self.code(second.value)})"))  # type: ignore[union-attr]
        return updated


class AndCall(Ifs):
    """`c and f()` for `if c: f()`."""

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """One statement."""
        body = as_statements(updated.body)
        if updated.orelse is not None or len(body) != 1 or not m.matches(body[0], m.SimpleStatementLine(body=[m.Expr(m.Call())])):
            return updated
        return flat(updated, stmt(f"({self.code(updated.test)}) and {self.code(body[0].body[0].value)}"))  # type: ignore[union-attr]


class Unternary(Rewriter):
    """`if c: x = a else: x = b` for `x = a if c else b`."""

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine) -> Done:
        shape = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget()], value=m.IfExp())])
        if not m.matches(updated_node, shape) or self.in_class_body(original_node):
            return updated_node
        assign = updated_node.body[0]
        assert isinstance(assign, cst.Assign) and isinstance(assign.value, cst.IfExp)
        target, value = self.code(assign.targets[0].target), assign.value
        self.changes += 1
        text = f"if {self.code(value.test)}:\n    {target} = {self.code(value.body)}\nelse:\n    {target} = {self.code(value.orelse)}\n"
        return flat(updated_node, stmt(text))


class Exits(Rewriter):
    """An `if` at the end of a body as an early exit; or an early exit as an `if` around the rest."""

    def __init__(self, module: cst.Module, *, inverse: bool) -> None:
        super().__init__(module)
        self.inverse = inverse

    def _body(self, suite: cst.BaseSuite, word: str) -> cst.BaseSuite:
        statements = as_statements(suite)
        new = self._unfolded(statements, word) if self.inverse else self._folded(statements, word)
        if new is None:
            return suite
        self.changes += 1
        return block(new)

    def _folded(self, statements: Sequence[Statement], word: str) -> list[Statement] | None:
        last = statements[-1]
        if not isinstance(last, cst.If) or last.orelse is not None:
            return None
        leave = stmt(f"if not ({self.code(last.test)}):\n    {word}\n").with_changes(leading_lines=last.leading_lines)  # type: ignore[union-attr]
        return [*statements[:-1], leave, *as_statements(last.body)]

    def _unfolded(self, statements: Sequence[Statement], word: str) -> list[Statement] | None:
        for place, one in enumerate(statements[:-1]):
            if isinstance(one, cst.If) and one.orelse is None:
                body = as_statements(one.body)
                if len(body) == 1 and self.code(body[0]) in (word, f"{word} None"):
                    rest = one.with_changes(test=negation(self.code(one.test)), whitespace_before_test=SPACE)
                    return [*statements[:place], rest.with_changes(body=block(statements[place + 1 :]))]
        return None

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        return updated_node.with_changes(body=self._body(updated_node.body, "return"))

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return updated_node.with_changes(body=self._body(updated_node.body, "continue"))

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> cst.While:
        return updated_node.with_changes(body=self._body(updated_node.body, "continue"))


class ElseOfExit(Rewriter):
    """`if c: return a` with `else:` around what follows it."""

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.IndentedBlock:
        for place, one in enumerate(updated_node.body[:-1]):
            if isinstance(one, cst.If) and one.orelse is None:
                last = as_statements(one.body)[-1]
                if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return | cst.Break | cst.Continue):
                    self.changes += 1
                    rest = cst.Else(body=block(updated_node.body[place + 1 :]))  # type: ignore[arg-type]
                    return updated_node.with_changes(body=[*updated_node.body[:place], one.with_changes(orelse=rest)])
        return updated_node


class BodyInFunction(Ifs):
    """What an `if` does, in a nested function that it calls."""

    def __init__(self, module: cst.Module, kind: str) -> None:
        super().__init__(module)
        self.kind = kind

    def rewritten(self, original: cst.If, updated: cst.If) -> Done:
        """The function, and the `if` that calls it."""
        body = as_statements(updated.body)
        plain, other = bound_in(body)
        if updated.orelse is not None or plain or other or jumps(body):
            return updated
        name = self.fresh("act")
        act = holding(f"def {name}():\n    pass\n", body)
        test = self.code(updated.test)
        if self.kind == "table":
            table = self.fresh("actions")
            made = stmt(f"{table} = {{True: {name}, False: lambda: None}}")
            return flat(updated, act, made, stmt(f"{table}[bool({test})]()"))
        if self.kind == "hooks":
            hooks, one = self.fresh("hooks"), self.fresh("hook")
            made = stmt(f"{hooks} = []")
            added = stmt(f"if {test}:\n    {hooks}.append({name})\n")
            return flat(updated, act, made, added, stmt(f"for {one} in {hooks}:\n    {one}()\n"))
        return flat(updated, act, updated.with_changes(body=block([stmt(f"{name}()")]), leading_lines=()))


def _form(name: str, make: Callable[[cst.Module], Rewriter]) -> Form:
    return of("conditions", name, make)


FORMS: list[Form] = [
    _form("negated, arms in the other order", Negated),
    _form("negated twice", TwiceNegated),
    _form("walrus", Walrus),
    _form("match on a truth value", Match),
    _form("match on the value compared", MatchValue),
    _form("while with a break for if", WhileOnce),
    _form("and as nested ifs", Nested),
    _form("nested ifs as and", Merged),
    _form("De Morgan", DeMorgan),
    _form("elif as else with an if", Elif),
    _form("if as a ternary", Ternary),
    _form("if with one call as and", AndCall),
    _form("ternary as an if", Unternary),
    _form("last if as an early exit", lambda module: Exits(module, inverse=False)),
    _form("early exit as an if around the rest", lambda module: Exits(module, inverse=True)),
    _form("else after an exit", ElseOfExit),
    _form("body of an if in a function", lambda module: BodyInFunction(module, "call")),
    _form("body of an if in a dispatch table", lambda module: BodyInFunction(module, "table")),
    _form("body of an if as a hook that is listed", lambda module: BodyInFunction(module, "hooks")),
]
