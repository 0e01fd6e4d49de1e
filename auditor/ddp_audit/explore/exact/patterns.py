"""The patterns of `match` statements in an interpreted run. A pattern fits, does not, or that is not known (None)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, expressions
from ddp_audit.explore.exact.values import MISSING, PLAIN, Class, Instance, Lib, Module, Scope, Tensor, Unknown
from ddp_audit.folding import TooLarge, check_key

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_OF_ITSELF = ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple")  # `int(x)` binds the value


def fits(it: Interpreter, pattern: ast.pattern, subject: Any, scope: Scope) -> bool | None:
    """Whether a value fits a pattern, whose names are bound on the way; None where the value does not tell."""
    match pattern:
        case ast.MatchValue(value=value):
            return it.known_truth(expressions.compare(it, ast.Eq(), subject, expressions.evaluate(it, value, scope)))
        case ast.MatchSingleton(value=value):
            return None if isinstance(subject, Unknown) else subject is value
        case ast.MatchOr(patterns=patterns):
            return _one_of(it, patterns, subject, scope)
        case ast.MatchAs(pattern=inner, name=name):
            known = True if inner is None else fits(it, inner, subject, scope)
            if name and known is not False:
                it.bind(name, subject, scope)
            return known
        case ast.MatchSequence(patterns=patterns):
            return _sequence(it, patterns, subject, scope)
        case ast.MatchMapping():
            return _mapping(it, pattern, subject, scope)
        case ast.MatchClass():
            return _class(it, pattern, subject, scope)
    return None


def _one_of(it: Interpreter, patterns: list[ast.pattern], subject: Any, scope: Scope) -> bool | None:
    answer: bool | None = False
    for pattern in patterns:
        known = fits(it, pattern, subject, scope)
        if known:
            return True
        answer = None if known is None else answer
    return answer


def _all(it: Interpreter, pairs: list[tuple[ast.pattern, Any]], scope: Scope) -> bool | None:
    answer: bool | None = True
    for pattern, part in pairs:
        known = fits(it, pattern, part, scope)
        if known is False:
            return False
        answer = None if known is None else answer
    return answer


def _sequence(it: Interpreter, patterns: list[ast.pattern], subject: Any, scope: Scope) -> bool | None:
    if not isinstance(subject, (list, tuple, range)):
        return False if isinstance(subject, (*PLAIN, dict, set, Instance, Module, Tensor)) else None
    star = next((number for number, pattern in enumerate(patterns) if isinstance(pattern, ast.MatchStar)), None)
    if star is None:
        return _all(it, list(zip(patterns, subject, strict=True)), scope) if len(patterns) == len(subject) else False
    after = len(patterns) - star - 1
    if len(subject) < star + after:
        return False
    rest = subject[star : len(subject) - after]
    starred = patterns[star]
    if isinstance(starred, ast.MatchStar) and starred.name:
        it.bind(starred.name, list(rest), scope)
    ends = [*zip(patterns[:star], subject[:star], strict=True)]
    ends += zip(patterns[star + 1 :], subject[len(subject) - after :], strict=True)
    return _all(it, ends, scope)


def _mapping(it: Interpreter, pattern: ast.MatchMapping, subject: Any, scope: Scope) -> bool | None:
    if not isinstance(subject, dict):
        return False if isinstance(subject, (*PLAIN, list, tuple, set, range, Instance, Module, Tensor)) else None
    keys = [expressions.evaluate(it, key, scope) for key in pattern.keys]
    if any(isinstance(key, (Unknown, Tensor)) for key in keys):
        return None
    try:
        if any(check_key(key) not in subject for key in keys):
            return False
    except (TooLarge, TypeError):
        return None
    if pattern.rest:
        it.bind(pattern.rest, {key: value for key, value in subject.items() if key not in keys}, scope)
    return _all(it, [(inner, subject[key]) for key, inner in zip(keys, pattern.patterns, strict=True)], scope)


def _class(it: Interpreter, pattern: ast.MatchClass, subject: Any, scope: Scope) -> bool | None:
    kind = expressions.evaluate(it, pattern.cls, scope)
    known = it.known_truth(calls.call(it, Lib("builtins.isinstance"), [subject, kind], {}))
    if known is not True:
        return known
    parts: list[tuple[ast.pattern, Any]] = []
    if pattern.patterns:
        if isinstance(kind, Lib) and kind.name.removeprefix("builtins.") in _OF_ITSELF:
            parts.append((pattern.patterns[0], subject))
        else:
            names = _positions(it, kind)
            if names is None or len(names) < len(pattern.patterns):
                return None
            parts += [(inner, calls.attribute(it, subject, name)) for inner, name in zip(pattern.patterns, names, strict=False)]
    named = zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True)
    parts += [(inner, calls.attribute(it, subject, name)) for name, inner in named]
    return _all(it, parts, scope)


def _positions(it: Interpreter, kind: Any) -> list[str] | None:
    """The attributes that the positions of a class pattern stand for; None where they are not known."""
    if not isinstance(kind, Class):
        return None
    named = kind.find("__match_args__")
    if isinstance(named, tuple) and all(isinstance(name, str) for name in named):
        return list(named)
    return [name for name, _ in kind.fields] if named is MISSING and kind.fields is not None else None


__all__ = ["fits"]
