"""Descriptions of a user's own libraries: TOML files that the settings name under `stubs`, with the keys of `Stub`.

They are data: an expression in them is read by the engines as they read a program, and is never executed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddp_audit.knowledge.framework import Framework, framework_of
from ddp_audit.knowledge.reading import KnowledgeError, known_keys, parse, texts

MOST_BYTES = 256_000  # of a file
_MOST_ENTRIES = 2_000
_MOST_LETTERS = 1_000  # of an expression or a list of parameters
REASONS = ("rank", "local data", "files", "clock", "random numbers", "an exception")
_DEEPEST = 40  # nesting of an expression
_KEYS = ("takes", "like", "gives", "adds", "value", "main-process")
_FRAMEWORK_KEYS = ("name", "packages", "imports-with", "does")
_ALLOWED = (
    ast.Call, ast.keyword, ast.Starred, ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.Dict,
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Stub:
    """What a function, class, method or value of a library is like.

    `signature` has its parameters (`takes`). A call does what the expressions in `like` do, in names of other libraries and its own
    parameters, and gives what the last of them gives; `gives` says otherwise: `uniform` (equal on all ranks), `unknown`, `none`, or
    the name of a parameter, which it returns. Without `like` a call does nothing that matters. `adds` are reasons for which what it
    gives can differ between ranks. `value` is what the name itself stands for, where it is read. With `main_process` it is a
    decorator that runs a function on the main process alone.
    """

    name: str
    signature: ast.FunctionDef
    like: tuple[ast.expr, ...] = ()
    gives: str = ""
    adds: frozenset[str] = frozenset()
    value: ast.expr | None = None
    main_process: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters, with `*args` and `**kwargs`."""
        spec = self.signature.args
        extra = [one.arg for one in (spec.vararg, spec.kwarg) if one is not None]
        return (*(one.arg for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)), *extra)


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """What one file describes."""

    path: str
    stubs: Mapping[str, Stub]
    framework: Framework | None = None

    @property
    def count(self) -> int:
        """How many descriptions it has."""
        return len(self.stubs) + (self.framework is not None)


def described_in(text: str, path: str) -> Described:
    """Return what a file describes. Raises KnowledgeError; the text names the path."""
    try:
        return _described_in(text, path)
    except KnowledgeError as error:
        said = "".join(letter if letter.isprintable() else " " for letter in str(error))
        raise KnowledgeError(f"{path}: {' '.join(said.split())}") from None


def _described_in(text: str, path: str) -> Described:
    framework: Framework | None = None
    stubs: dict[str, Stub] = {}
    for module, table in parse(text).items():
        if not isinstance(table, dict):
            raise KnowledgeError(f"'{module}' must be a table: a module, with its names in quotes, or 'framework'")
        if module == "framework":
            known_keys(table, _FRAMEWORK_KEYS, "'framework'")
            framework = framework_of(table)
            continue
        for name, entry in table.items():
            if not isinstance(entry, dict):
                raise KnowledgeError(f"'{module}.{name}' must be a table: {name} = {{ .. }}")
            full = f"{module}.{name}"
            stubs[full] = _stub(full, entry)
    if len(stubs) > _MOST_ENTRIES:
        raise KnowledgeError(f"has {len(stubs)} descriptions; {_MOST_ENTRIES} are the most")
    return Described(path, stubs, framework)


def _stub(name: str, table: dict[str, Any]) -> Stub:
    if table and all(isinstance(value, dict) for value in table.values()):
        module, _, last = name.rpartition(".")
        raise KnowledgeError(f"the table [\"{module}\"] has a table '{last}' in it: a module's whole name stands in quotes")
    known_keys(table, _KEYS, f"'{name}'")
    signature = _signature(name, table.get("takes", ""))
    like = tuple(_expression(one, f"'like' of '{name}'") for one in texts(table.get("like", []), f"'like' of '{name}'"))
    value = None if "value" not in table else _expression(table["value"], f"'value' of '{name}'")
    adds = texts(table.get("adds", []), f"'adds' of '{name}'")
    for reason in adds:
        if reason not in REASONS:
            raise KnowledgeError(f"'adds' of '{name}' has '{reason}'; the reasons are {', '.join(REASONS)}")
    stub = Stub(name, signature, like, table.get("gives", ""), frozenset(adds), value, table.get("main-process") is True)
    if stub.gives not in ("", "uniform", "unknown", "none", *stub.parameters):
        raise KnowledgeError(f"'gives' of '{name}' must be uniform, unknown, none or one of its parameters")
    return stub


def _signature(name: str, takes: Any) -> ast.FunctionDef:
    what = f"'takes' of '{name}'"
    if not isinstance(takes, str) or len(takes) > _MOST_LETTERS:
        raise KnowledgeError(f"{what} must be a text of at most {_MOST_LETTERS} letters")
    body = _parsed(f"def f({takes}): pass", what, takes)
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or len(body[0].body) != 1:
        raise KnowledgeError(f"{what} is not a list of parameters: {takes}")
    spec = body[0].args
    for default in (*spec.defaults, *(one for one in spec.kw_defaults if one is not None)):
        _check(default, what)
    return body[0]


def _expression(text: Any, what: str) -> ast.expr:
    if not isinstance(text, str) or len(text) > _MOST_LETTERS:
        raise KnowledgeError(f"{what} must be a text of at most {_MOST_LETTERS} letters")
    body = _parsed(text, what, text)
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise KnowledgeError(f"{what} is not one expression: {text}")
    _check(body[0].value, what)
    return body[0].value


def _parsed(code: str, what: str, shown: str) -> list[ast.stmt]:
    try:
        return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise KnowledgeError(f"{what} is not Python: {shown}") from None


def _check(node: ast.expr, what: str) -> None:
    level: list[ast.AST] = [node]
    for _ in range(_DEEPEST):
        for part in level:
            if not isinstance(part, _ALLOWED):
                raise KnowledgeError(f"{what} has {type(part).__name__}; names, calls, operators and constants are allowed")
        level = [inner for part in level for inner in ast.iter_child_nodes(part)]
        if not level:
            return
    raise KnowledgeError(f"{what} is nested deeper than {_DEEPEST}")


def libraries_in(node: ast.expr, parameters: tuple[str, ...]) -> Iterator[str]:
    """Yield the libraries that an expression names: `torch` of `torch.distributed.barrier()`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id not in parameters:
            yield part.value.id


def located(node: ast.expr, at: ast.AST) -> ast.expr:
    """Return a copy of an expression that stands where a call of the program does."""
    made = copy.deepcopy(node)
    for part in ast.walk(made):
        if "lineno" in part._attributes:
            ast.copy_location(part, at)
    return made


__all__ = ["MOST_BYTES", "REASONS", "Described", "KnowledgeError", "Stub", "described_in", "libraries_in", "located"]
