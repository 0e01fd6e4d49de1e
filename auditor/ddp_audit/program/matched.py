"""`match` statements as branches: each case a condition on the subject, so that guards and joins are those of `if`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

_MOST_GUARDED = 4  # cases with a pattern and a guard: the cases behind each stand in two places


def as_branches(node: ast.Match, subject: str) -> list[ast.stmt] | None:
    """The cases as an `if` chain on the name `subject`; None where a pattern has a form that no condition says."""
    if sum(case.guard is not None for case in node.cases) > _MOST_GUARDED:
        return None
    chain: list[ast.stmt] = []
    for case in reversed(node.cases):
        found = _pattern(case.pattern, ast.Name(subject, ast.Load()))
        if found is None:
            return None
        tests, captured = found
        binds: list[ast.stmt] = [_at(case.pattern, ast.Assign([ast.Name(name, ast.Store())], value)) for name, value in captured]
        if case.guard is not None:
            # A guard reads what the pattern binds: it is asked inside of the pattern's own branch, and where it fails
            # the cases behind are asked.
            inner: list[ast.stmt] = [_at(case.pattern, ast.If(case.guard, list(case.body), chain))]
            chain = _branch(case.pattern, tests, [*binds, *inner], chain)
        else:
            chain = _branch(case.pattern, tests, [*binds, *case.body], chain)
    return chain


def _branch(pattern: ast.pattern, tests: Sequence[ast.expr], body: list[ast.stmt], orelse: list[ast.stmt]) -> list[ast.stmt]:
    """The body where all tests hold, without a condition if there is nothing to ask."""
    if not tests:
        return body
    test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), list(tests))
    return [_at(pattern, ast.If(test, body, orelse))]


Found = tuple[list[ast.expr], list[tuple[str, ast.expr]]]


def _pattern(pattern: ast.pattern, subject: ast.expr) -> Found | None:
    """The tests of a pattern and the names that it binds."""
    match pattern:
        case ast.MatchValue(value=value):
            return [ast.Compare(subject, [ast.Eq()], [value])], []
        case ast.MatchSingleton(value=constant):
            return [ast.Compare(subject, [ast.Is()], [ast.Constant(constant)])], []
        case ast.MatchAs(pattern=inner, name=name):
            found: Found | None = ([], []) if inner is None else _pattern(inner, subject)
            if found is None or name is None:
                return found
            return found[0], [*found[1], (name, subject)]
        case ast.MatchOr(patterns=patterns):
            arms = [_pattern(one, subject) for one in patterns]
            whole = [arm[0] for arm in arms if arm is not None and not arm[1]]
            if len(whole) < len(arms):
                return None
            if not all(whole):
                return [], []
            return [ast.BoolOp(ast.Or(), [tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests) for tests in whole])], []
        case ast.MatchSequence(patterns=patterns) if not any(isinstance(one, ast.MatchStar) for one in patterns):
            length = ast.Call(ast.Name("len", ast.Load()), [subject], [])
            tests: list[ast.expr] = [ast.Compare(length, [ast.Eq()], [ast.Constant(len(patterns))])]
            captured: list[tuple[str, ast.expr]] = []
            for index, one in enumerate(patterns):
                part = _pattern(one, ast.Subscript(subject, ast.Constant(index), ast.Load()))
                if part is None:
                    return None
                tests += part[0]
                captured += part[1]
            return tests, captured
        case ast.MatchClass(cls=cls, patterns=[], kwd_attrs=names, kwd_patterns=patterns):
            tests = [ast.Call(ast.Name("isinstance", ast.Load()), [subject, cls], [])]
            captured = []
            for name, one in zip(names, patterns, strict=True):
                part = _pattern(one, ast.Attribute(subject, name, ast.Load()))
                if part is None:
                    return None
                tests += part[0]
                captured += part[1]
            return tests, captured
    return None


def _at(pattern: ast.pattern, statement: ast.If | ast.Assign) -> ast.stmt:
    """A statement that stands where its pattern does; what it took from the program keeps its own place."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        child = waiting.pop()
        if isinstance(child, (ast.expr, ast.stmt)):
            if hasattr(child, "lineno"):
                continue  # with all that it holds: a chain of thousands of cases is not walked again for each
            ast.copy_location(child, pattern)
        waiting += ast.iter_child_nodes(child)
    return statement
