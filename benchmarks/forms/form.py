"""What a rewriting is, and what all of them share: fresh names, what a scope binds, where jumps lead, what stands on top.

A form takes the text of a program and returns the text of another one that does the same, with further files where it
moves code. It returns None where it has no place to apply.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst
from libcst.metadata import (
    ClassScope,
    ComprehensionScope,
    ExpressionContextProvider,
    FunctionScope,
    MetadataWrapper,
    ParentNodeProvider,
    ScopeProvider,
)

Statement = cst.BaseStatement


class Unfit(Exception):
    """This program cannot be rewritten so and keep its meaning."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program: the text of its script, and files beside it by name."""

    text: str
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Form:
    """One rewriting. `mends` are the rules whose fault it takes away, so that it does not apply to their bad programs.

    `own_launch` says that it reads what torchrun sets, so that it does not apply to a program that spawns its ranks itself.
    """

    name: str
    family: str
    rewrite: Callable[[Source], Source | None]
    mends: frozenset[str] = frozenset()
    own_launch: bool = False


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> MetadataWrapper:
    """A program with its scopes; all forms of one program share it."""
    return MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)


def of(
    family: str, name: str, make: Callable[[cst.Module], Rewriter], mends: Iterable[str] = (), *, own_launch: bool = False
) -> Form:
    """A form made of a transformer."""

    def rewrite(source: Source) -> Source | None:
        wrapper = _parsed(source.text)
        try:
            rewriter = make(wrapper.module)
            module = wrapper.visit(rewriter)
            if not rewriter.changes:
                return None
            text = rewriter.finished(module).code
            compile(text, "rewritten.py", "exec")
        except (Unfit, SyntaxError):  # the latter where a form does not go with what another one made
            return None
        return replace(source, text=text, files=source.files | rewriter.files)

    return Form(name, family, rewrite, frozenset(mends), own_launch)


class Rewriter(cst.CSTTransformer):
    """A transformer that counts its changes, finds fresh names, and may put imports and definitions on top."""

    METADATA_DEPENDENCIES = (ScopeProvider, ParentNodeProvider, ExpressionContextProvider)

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self.module = module
        self.changes = 0
        self.files: dict[str, str] = {}
        self.names = names_in([module])
        self._imports: dict[str, None] = {}
        self._top: list[Statement] = []

    def fresh(self, stem: str) -> str:
        """A name that nothing in the program has."""
        name, number = stem, 2
        while name in self.names:
            name, number = f"{stem}_{number}", number + 1
        self.names.add(name)
        return name

    def need(self, *packages: str) -> None:
        """Import packages under their own names. Raises Unfit where the program uses such a name for something else."""
        for package in packages:
            line = f"import {package}"
            own = [one for one in self.module.body if not is_import(one)]
            if line not in self._imports and not _imports(self.module, package) and package in names_in(own):
                raise Unfit(package)
            self._imports[line] = None

    def need_line(self, line: str) -> None:
        """Put an import line at the top."""
        self._imports[line] = None

    def top(self, text: str) -> None:
        """Put statements after the imports at the top."""
        self._top += cst.parse_module(text).body

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        return self.module.code_for_node(node).strip()

    def scope_of(self, node: cst.CSTNode) -> object:
        """The scope that a node's names are looked up in."""
        return self.get_metadata(ScopeProvider, node, None)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node that holds another."""
        return self.get_metadata(ParentNodeProvider, node)

    def in_class_body(self, node: cst.CSTNode) -> bool:
        """Whether a statement stands right in the body of a class."""
        return isinstance(self.function_around(node), cst.ClassDef)

    def function_around(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function, class or module right around a node."""
        at = self.parent(node)
        while not isinstance(at, cst.FunctionDef | cst.Lambda | cst.ClassDef | cst.Module):
            at = self.parent(at)
        return at

    def free_locals(self, node: cst.CSTNode) -> list[str]:
        """The names in an expression that a function around it binds, in their order."""
        found: dict[str, None] = {}
        for name in loads_in(node):
            scope = self.get_metadata(ScopeProvider, name, None)
            if scope is None:
                raise Unfit(name.value)
            for assignment in scope[name.value]:
                home = getattr(assignment, "scope", None)
                if isinstance(home, FunctionScope) and not isinstance(home, ComprehensionScope):
                    found[name.value] = None
                elif isinstance(home, ClassScope):
                    raise Unfit(name.value)
        return list(found)

    def finished(self, module: cst.Module) -> cst.Module:
        """The module with what is put at its top."""
        statements = [stmt(line) for line in self._imports if not _imports(self.module, line.removeprefix("import "))]
        place = _after_imports(module.body)
        body = [*module.body[:place], *statements, *self._top, *module.body[place:]]
        return module.with_changes(body=body)


def stmt(text: str) -> Statement:
    """A statement from its text."""
    return cst.parse_statement(text)  # type: ignore[return-value]


def expr(text: str) -> cst.BaseExpression:
    """An expression from its text."""
    return cst.parse_expression(text)


def block(statements: Iterable[Statement]) -> cst.IndentedBlock:
    """A block of statements."""
    return cst.IndentedBlock(body=list(statements))


def as_statements(body: cst.BaseSuite) -> list[Statement]:
    """The statements of a suite, also of one on the line of its header."""
    if isinstance(body, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(body=body.body)]
    return list(body.body)  # type: ignore[arg-type]


def holding(text: str, body: Iterable[Statement]) -> Statement:
    """A compound statement, from its text with `pass` as its body, with another body."""
    return stmt(text).with_changes(body=block(body))  # type: ignore[union-attr]


def flat(node: cst.CSTNode, *statements: Statement) -> cst.FlattenSentinel[Statement]:
    """Some statements in the place of one, with its comments before the first."""
    lines = getattr(node, "leading_lines", ())
    rest = [one.with_changes(leading_lines=()) if one is node else one for one in statements]
    return cst.FlattenSentinel([rest[0].with_changes(leading_lines=lines), *rest[1:]])  # type: ignore[union-attr]


def is_docstring(statement: cst.CSTNode) -> bool:
    """Whether a statement is nothing but a text."""
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def split_docstring(statements: Sequence[Statement]) -> tuple[list[Statement], list[Statement]]:
    """The docstring of a body, if any, and the rest."""
    first = 1 if statements and is_docstring(statements[0]) else 0
    return list(statements[:first]), list(statements[first:])


def is_import(statement: cst.CSTNode) -> bool:
    """Whether a statement does nothing but import."""
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(part, cst.Import | cst.ImportFrom) for part in statement.body
    )


def is_future(statement: cst.CSTNode) -> bool:
    """Whether a statement imports from `__future__`."""
    return is_import(statement) and "__future__" in cst.Module(body=[statement]).code  # type: ignore[list-item]


def is_main_guard(node: cst.CSTNode) -> bool:
    """Whether a node is `if __name__ == ..`."""
    return isinstance(node, cst.If) and "__name__" in names_in([node.test])


def _after_imports(body: Sequence[cst.CSTNode]) -> int:
    place = 0
    while place < len(body) and (is_import(body[place]) or (place == 0 and is_docstring(body[place]))):
        place += 1
    return place


def _imports(module: cst.Module, package: str) -> bool:
    """Whether a module imports a package at its top under the package's own name."""
    for statement in module.body:
        if is_import(statement):
            for part in statement.body:  # type: ignore[union-attr]
                if isinstance(part, cst.Import):
                    for alias in part.names:
                        if alias.asname is None and cst.Module(body=[]).code_for_node(alias.name) == package:
                            return True
    return False


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:
        self.found.add(node.value)


def names_in(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """Every identifier in some nodes, attributes included."""
    visitor = _Names()
    for node in nodes:
        node.visit(visitor)
    return visitor.found


class _Loads(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: list[cst.Name] = []

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.found.append(node)


def loads_in(node: cst.CSTNode) -> list[cst.Name]:
    """The names that an expression looks up, without attributes and keywords."""
    visitor = _Loads()
    node.visit(visitor)
    return visitor.found


class _Jumps(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: set[str] = set()
        self._loops = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_For(self, node: cst.For) -> None:
        self._loops += 1

    def leave_For(self, original_node: cst.For) -> None:
        self._loops -= 1

    def visit_While(self, node: cst.While) -> None:
        self._loops += 1

    def leave_While(self, original_node: cst.While) -> None:
        self._loops -= 1

    def visit_Return(self, node: cst.Return) -> None:
        self.found.add("return")

    def visit_Yield(self, node: cst.Yield) -> None:
        self.found.add("yield")

    def visit_Await(self, node: cst.Await) -> None:
        self.found.add("await")

    def visit_Break(self, node: cst.Break) -> None:
        if not self._loops:
            self.found.add("break")

    def visit_Continue(self, node: cst.Continue) -> None:
        if not self._loops:
            self.found.add("continue")


def jumps(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """How control leaves some statements: return, yield, await, and break or continue of a loop around them."""
    visitor = _Jumps()
    for node in nodes:
        node.visit(visitor)
    return visitor.found


class _Bound(cst.CSTVisitor):
    """What statements bind in their own scope. `plain` are those bound by assignments and loops alone."""

    def __init__(self) -> None:
        self.plain: set[str] = set()
        self.other: set[str] = set()

    def _target(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Name):
            self.plain.add(node.value)
        elif isinstance(node, cst.Tuple | cst.List):
            for element in node.elements:
                self._target(element.value)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._target(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._target(node.target)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._target(node.target)

    def visit_For(self, node: cst.For) -> None:
        self._target(node.target)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self.other |= names_in([node.target])

    def visit_AsName(self, node: cst.AsName) -> None:
        self.other |= names_in([node.name])

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        if node.asname is None:
            self.other.add(cst.Module(body=[]).code_for_node(node.name).split(".")[0])

    def visit_Global(self, node: cst.Global) -> None:
        self.other |= {item.name.value for item in node.names}

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:
        self.other |= {item.name.value for item in node.names}

    def visit_Del(self, node: cst.Del) -> None:
        self.other |= names_in([node.target])

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self.other.add(node.name.value)
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self.other.add(node.name.value)
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_MatchAs(self, node: cst.MatchAs) -> None:
        if node.name is not None:
            self.other.add(node.name.value)


def bound_in(nodes: Iterable[cst.CSTNode]) -> tuple[set[str], set[str]]:
    """What statements bind by assignments and loops, and what they bind otherwise as well or alone."""
    visitor = _Bound()
    for node in nodes:
        node.visit(visitor)
    return visitor.plain, visitor.other


def looks_at_names(module: cst.Module) -> bool:
    """Whether a program asks for its names as texts, so that another name is another meaning."""
    return bool(names_in([module]) & {"locals", "globals", "vars", "eval", "exec", "__dict__", "inspect", "pickle"})
