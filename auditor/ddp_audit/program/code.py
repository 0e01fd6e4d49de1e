"""What the code of the files read says, by its syntax trees, where the nodes of a program do not keep it.

It is asked for a hint, as that some line fixes what a rule would report, and for the words of a fix: the code stands there, reached
or not. A name is a variable, an attribute, a keyword, a parameter, what is imported, or a text that is a name, as dicts have them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

from ddp_audit.findings import Span
from ddp_audit.knowledge import kinds, words
from ddp_audit.program.model import Program
from ddp_audit.program.state import ClassInfo
from ddp_audit.source.files import SourceFile

A = TypeVar("A", bound=ast.AST)
B = TypeVar("B", bound=ast.AST)
T = TypeVar("T", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class Written(Generic[T]):
    """A piece of code, with the file that it stands in."""

    source: SourceFile
    node: T

    @property
    def path(self) -> str:
        """The path of its file."""
        return self.source.path

    @property
    def line(self) -> int:
        """The line on which it begins."""
        return int(getattr(self.node, "lineno", 0))

    @property
    def code(self) -> str:
        """The code of that line."""
        return self.source.line(self.line).split("#", 1)[0].strip()

    @property
    def whole_line(self) -> Span:
        """That line, from its first letter to the end of its code."""
        text = self.source.line(self.line)
        code = text.split("#", 1)[0].rstrip()
        return Span(self.path, self.line, len(text) - len(text.lstrip()) + 1, self.line, len(code) + 1)


class Arm(NamedTuple):
    """A part of a compound statement that some code stands in: its body, orelse, handlers, finalbody or cases."""

    statement: ast.stmt
    part: str


@dataclass(frozen=True, slots=True)
class _Index:
    """The words of a piece of code: see `speaks_of`, `calls_of`, `is_given` and `enters`."""

    names: frozenset[str]
    calls: tuple[tuple[str, ast.Call], ...]
    given: frozenset[tuple[str, object]]
    entered: frozenset[str]


# ---- names and calls anywhere


def speaks_of(where: Program | ClassInfo, *parts: str, path: str | None = None) -> bool:
    """Whether a name in the files read, in one of them or in a class of the project has one of some parts in it."""
    if isinstance(where, ClassInfo):
        there = any(part in where.frame.source.text for part in parts)
        return there and any(part in name for name in _of_class(where).names for part in parts)
    return any(part in name for _, index in _indexes(where, parts, path) for name in index.names for part in parts)


def hints_at(where: Program | ClassInfo, meaning: str, path: str | None = None) -> bool:
    """Whether a name in the files read, in one of them or in a class of the project has a word of a meaning."""
    if isinstance(where, ClassInfo):
        return any(words.says(name, meaning) for name in _of_class(where).names)
    return any(words.says(name, meaning) for _, index in _indexes(where, (), path) for name in index.names)


def calls_of(where: Program | ClassInfo, *names: str, path: str | None = None) -> list[Written[ast.Call]]:
    """The calls of functions and methods by their last names: `backward`, `random.getstate`."""
    if isinstance(where, ClassInfo):
        source = where.frame.source
        found = [(source, _of_class(where))] if any(name.rpartition(".")[2] in source.text for name in names) else []
    else:
        found = list(_indexes(where, [name.rsplit(".", 1)[-1] for name in names], path))
    endings = tuple("." + name for name in names)
    return [Written(source, call) for source, index in found for name, call in index.calls if f".{name}".endswith(endings)]


def calls_of_kind(where: Program | ClassInfo, kind: str) -> list[Written[ast.Call]]:
    """The calls of functions and methods of a kind of `knowledge/kinds.toml`."""
    return calls_of(where, *kinds.kinds()[kind])


def calls_with(program: Program, meaning: str) -> list[Written[ast.Call]]:
    """The calls whose last name has a word of a meaning."""
    found = [(source, name, call) for source, index in _indexes(program, ()) for name, call in index.calls]
    return [Written(source, call) for source, name, call in found if words.says(name.rpartition(".")[2], meaning)]


def is_given(program: Program, name: str, *values: object) -> bool:
    """Whether a keyword, parameter, variable, attribute or key gets one of some constants; any value where none is named."""
    pairs = (pair for _, index in _indexes(program, [name]) for pair in index.given)
    return any(given == name and (not values or value in values) for given, value in pairs)


def enters(program: Program, *parts: str) -> bool:
    """Whether a with statement enters something whose last name begins with one of some parts."""
    return any(name.startswith(parts) for _, index in _indexes(program, parts) for name in index.entered)


def mentions(program: Program, *names: str, path: str | None = None) -> list[Written[ast.AST]]:
    """Each place where one of some names is used: called, read, or as a text."""
    found: list[Written[ast.AST]] = []
    for source in _files(program, names, path):
        for node in every(source.tree):
            used = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "value", None)
            if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)) and isinstance(used, str) and used in names:
                found.append(Written(source, node))
    return found


def written(program: Program, kind: type[T], *having: str, path: str | None = None) -> Iterator[Written[T]]:
    """Each piece of code of one kind; with words in the files alone that have one of them."""
    for source in _files(program, having, path):
        table = source.fact("by kind", source.tree, _by_kind)
        parts = [part for one, found in table.items() if issubclass(one, kind) for part in found]
        for _, node in sorted(parts, key=lambda part: part[0]):
            yield Written(source, cast("T", node))


def _by_kind(root: ast.AST) -> dict[type[ast.AST], list[tuple[int, ast.AST]]]:
    """The pieces of some code by their kind, each with its number in the order of the source."""
    found: dict[type[ast.AST], list[tuple[int, ast.AST]]] = {}
    for number, node in enumerate(every(root)):
        found.setdefault(type(node), []).append((number, node))
    return found


def names_in(node: ast.AST) -> frozenset[str]:
    """The names that a piece of code uses."""
    return _index(node).names


def names_in_file(source: SourceFile) -> frozenset[str]:
    """The names that a file uses."""
    return source.fact("code", source.tree, _index).names


def texts_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names and texts in some nodes, each by itself."""
    for node in nodes:
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.Constant(value=str() as text):
                yield text


def dotted(node: ast.expr) -> str:
    """A name with its attributes, `self.loader.sampler`; empty where it is anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


# ---- at and around a place


def code_at(program: Program, span: Span, kind: type[T]) -> T | None:
    """The piece of code of a kind at a place, None if there is not one."""
    source = program.files.get(span.path)
    if source is None:
        return None
    near = (n for n in code_within(program, span.path, span.line, span.line) if isinstance(n, kind))
    return next((n for n in near if source.span(n) == span), None)  # type: ignore[arg-type]


def code_within(program: Program, path: str, first: int, last: int) -> Iterator[ast.AST]:
    """Every piece of code of a file that begins on some lines, in order."""
    source = program.files.get(path)
    stack: list[ast.AST] = [] if source is None else [source.tree]
    while stack:
        node = stack.pop()
        if getattr(node, "lineno", first) > last or getattr(node, "end_lineno", first) < first:
            continue
        if first <= getattr(node, "lineno", 0) <= last:
            yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def assigned_at(program: Program, call: Span) -> str:
    """The plain variable that gets what a call at a place returns; empty without one."""
    for node in code_within(program, call.path, call.line, call.line):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Name) and program.files[call.path].span(node.value) == call:
                return targets[0].id
    return ""


def stored_within(program: Program, path: str, first: int, last: int) -> frozenset[str]:
    """The variables that get a value on some lines, other than by `x += 1`."""
    nodes = list(code_within(program, path, first, last))
    advanced = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    names = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return frozenset(node.id for node in names if id(node) not in advanced)


def function_at(program: Program, path: str, line: int) -> Function | None:
    """The innermost function that a line stands in, None on the level of a module or class."""
    found: Function | None = None
    for statement in _way_to(program, path, line):
        found = statement if isinstance(statement, Function) else None if isinstance(statement, ast.ClassDef) else found
    return found


def arms_around(program: Program, path: str, line: int) -> list[Arm]:
    """The parts of compound statements that a line stands in, innermost first, up to its function or class."""
    found: list[Arm] = []
    way = _way_to(program, path, line)
    for outer, inner in zip(way, [*way[1:], None], strict=True):
        if isinstance(outer, (*Function.__args__, ast.ClassDef)):
            found = []
            continue
        part = next((p for p in _PARTS if any(_stands_in(one, inner, line) for one in getattr(outer, p, ()) or ())), "")
        if part:
            found.append(Arm(outer, part))
    return found[::-1]


def with_its_condition(program: Program, span: Span) -> Span:
    """The span widened to the `if` around it where the statement is all that the `if` holds."""
    source = program.files.get(span.path)
    arm = next(iter(arms_around(program, span.path, span.line)), None)
    if source is None or arm is None or not isinstance(arm.statement, ast.If) or arm.part != "body":
        return span
    test = arm.statement
    alone = len(test.body) == 1 and not test.orelse and test.lineno == span.line - 1
    if not alone or not source.line(test.lineno).lstrip().startswith("if "):
        return span
    return Span(span.path, test.lineno, source.span(test).column, span.end_line, span.end_column)


def every(root: ast.AST, without: Collection[int] = ()) -> Iterator[ast.AST]:
    """A piece of code and all inside it, in the order of the source; without the pieces that have one of some ids."""
    stack = [root]
    while stack:
        node = stack.pop()
        if not without or id(node) not in without:
            yield node
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


# ---- how it is found

_PARTS = ("body", "orelse", "handlers", "finalbody", "cases")


def _stands_in(part: ast.AST, inner: ast.stmt | None, line: int) -> bool:
    if part is inner:
        return True
    if isinstance(part, (ast.ExceptHandler, ast.match_case)):
        return any(statement.lineno <= line <= (statement.end_lineno or 0) for statement in part.body)
    return isinstance(part, ast.stmt) and inner is None and part.lineno <= line <= (part.end_lineno or 0)


def _way_to(program: Program, path: str, line: int) -> list[ast.stmt]:
    """The statements that a line stands in, outermost first."""
    source = program.files.get(path)
    way: list[ast.stmt] = []
    block: list[ast.stmt] = [] if source is None else source.tree.body
    while True:
        statement = next((s for s in block if s.lineno <= line <= (s.end_lineno or s.lineno)), None)
        if statement is None:
            return way
        way.append(statement)
        block = [s for part in _PARTS for one in getattr(statement, part, ()) or () for s in _statements(one)]


def _statements(part: ast.AST) -> list[ast.stmt]:
    return part.body if isinstance(part, (ast.ExceptHandler, ast.match_case)) else [part] if isinstance(part, ast.stmt) else []


def _files(program: Program, having: Iterable[str], path: str | None = None) -> Iterator[SourceFile]:
    """The files read whose text has one of some words, or all where no word is given."""
    for source in program.files.values():
        if (path is None or source.path == path) and (not having or any(word in source.text for word in having)):
            yield source


def _indexes(program: Program, having: Iterable[str], path: str | None = None) -> Iterator[tuple[SourceFile, _Index]]:
    for source in _files(program, having, path):
        yield source, source.fact("code", source.tree, _index)


def _of_class(info: ClassInfo) -> _Index:
    return info.frame.source.fact("code", info.node, _index)


def _index(root: ast.AST) -> _Index:
    names: set[str] = set()
    calls: list[tuple[str, ast.Call]] = []
    given: set[tuple[str, object]] = set()
    entered: set[str] = set()
    for node in every(root):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Constant(value=str() as text):
                word = text.strip("-")
                if word.isidentifier():
                    names.add(word)
            case ast.Call(func=func, keywords=keywords):
                calls.append((_called(func), node))
                given |= {(k.arg, _constant(k.value)) for k in keywords if k.arg}
                names |= {k.arg for k in keywords if k.arg}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name):
                names |= {*name.split("."), *([node.asname] if node.asname else [])}
            case ast.Assign(targets=targets, value=value):
                given |= {(_last(target), _constant(value)) for target in targets}
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                given.add((_last(target), _constant(value)))
            case ast.arguments():
                positional = [*node.posonlyargs, *node.args]
                pairs = [*zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)]
                pairs += [(a, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d is not None]
                given |= {(a.arg, _constant(d)) for a, d in pairs}
            case ast.Dict(keys=keys, values=values):
                pairs_of_dict = zip(keys, values, strict=True)
                given |= {
                    (k.value, _constant(v)) for k, v in pairs_of_dict if isinstance(k, ast.Constant) and isinstance(k.value, str)
                }
            case ast.withitem(context_expr=context):
                entered.add(_last(context.func if isinstance(context, ast.Call) else context))
    return _Index(frozenset(names), tuple(calls), frozenset(given), frozenset(entered))


def _called(func: ast.expr) -> str:
    """The dotted name of what is called, of which the end is known at least."""
    return dotted(func) or _last(func)


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


_OTHER = object()  # a value that is not a constant


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) and not isinstance(node.value, (complex, float)) else _OTHER
