"""A file's text as a libcst tree with positions, and the moves that several codemods share. Comments and format are kept."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from ddp_audit.findings import Finding

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Block = cst.Module | cst.IndentedBlock
_Kind = TypeVar("_Kind", bound=cst.CSTNode)


_MOST_TEXT = 300_000  # characters of a file that is changed: libcst takes up to 0.1 ms and 5 KB for two of them
_DEEPEST = 600  # syntax nodes in each other; people's files have 30


class FixNotApplicable(Exception):
    """A codemod that leaves the file alone, because its edit would not be right here. The text completes 'no automatic fix: ..'."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One statement on the way from the module down to a place: the block that holds it, and where in the block."""

    block: Block
    index: int

    @property
    def statement(self) -> Statement:
        return _statements(self.block)[self.index]


def _is_deep(text: str) -> bool:
    """Whether nodes stand in each other deeper than _DEEPEST. libcst's parser takes minutes there, and nothing can end it."""
    try:
        stack: list[tuple[ast.AST, int]] = [(ast.parse(text), 0)]
    except RecursionError:
        return True
    except (SyntaxError, ValueError, MemoryError):  # libcst says what is wrong
        return False
    while stack:
        node, depth = stack.pop()
        if depth > _DEEPEST:
            return True
        stack.extend((inner, depth + 1) for inner in ast.iter_child_nodes(node))
    return False


class Tree:
    """The parsed text of one file. Lines and columns count from 1, in characters, as those of findings do.

    Raises Refused where libcst cannot read the text, or would take long.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_TEXT:
            raise FixNotApplicable(f"the file has more than {_MOST_TEXT:,} characters")
        if _is_deep(text):
            raise FixNotApplicable("the file is nested too deeply")
        try:
            wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        except (cst.ParserSyntaxError, RecursionError) as error:
            raise FixNotApplicable(f"libcst cannot read the file ({type(error).__name__})") from None
        self.module = wrapper.module
        try:
            self._positions = wrapper.resolve(PositionProvider)
        except (RecursionError, KeyError):  # libcst's own handler of the first raises the second
            raise FixNotApplicable("the file is nested too deeply") from None

    def position(self, node: cst.CSTNode) -> CodeRange:
        """Where a node begins and ends: lines from 1, columns from 0."""
        found = self._positions[node]
        assert isinstance(found, CodeRange)
        return found

    def path_to(self, line: int) -> list[Step]:
        """The statements around a line, outermost first; empty where the line holds none."""
        found: list[Step] = []
        blocks: list[Block] = [self.module]
        while blocks:
            block = blocks.pop()
            for index, statement in enumerate(_statements(block)):
                place = self.position(statement)
                if place.start.line <= line <= place.end.line:
                    found.append(Step(block, index))
                    blocks = list(_blocks_in(statement))
                    break
        return found

    def common_block(self, first_line: int, second_line: int) -> tuple[Step, Step, list[Step]]:
        """The statements of one block that lead to two lines, the earlier one first, and the rest of the way to the second.

        Raises Refused where no block holds both in that order.
        """
        first, second = self.path_to(first_line), self.path_to(second_line)
        shared = None
        for depth, (left, right) in enumerate(zip(first, second, strict=False)):
            if left.block is not right.block:
                break
            shared = depth
            if left.index != right.index:
                break
        if shared is None or first[shared].index >= second[shared].index:
            raise FixNotApplicable("the two statements do not stand one after the other in one block")
        return first[shared], second[shared], second[shared + 1 :]

    def at(self, kind: type[_Kind], finding: Finding) -> _Kind:
        """The node of a kind whose place is exactly that of a finding. Raises Refused."""
        span = finding.span
        wanted = (span.line, span.column - 1, span.end_line, span.end_column - 1)
        for node in walk(self.module):
            if isinstance(node, kind):
                place = self.position(node)
                if (place.start.line, place.start.column, place.end.line, place.end.column) == wanted:
                    return node
        raise FixNotApplicable("the place of the finding is written in a way that is not known here")

    def parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        """The parent of every node."""
        return {child: node for node in walk(self.module) for child in node.children}

    def holding(self, node: cst.CSTNode) -> Step:
        """The innermost statement that a node is in. Raises Refused where it stands in the header of a block."""
        way = self.path_to(self.position(node).start.line)
        found = next((step for step in reversed(way) if any(part is node for part in walk(step.statement))), None)
        if found is None or not isinstance(found.statement, cst.SimpleStatementLine):
            raise FixNotApplicable("it does not stand in a statement of its own")
        return found

    def with_block(self, block: Block, statements: Sequence[cst.CSTNode]) -> cst.Module:
        """The module with other statements in one of its blocks."""
        if block is self.module:
            return self.module.with_changes(body=list(statements))
        return self.replaced(block, block.with_changes(body=list(statements)))

    def replaced(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.Module:
        """The module with another node in the place of one of its nodes."""
        module = self.module.deep_replace(old, new)
        assert isinstance(module, cst.Module)
        return module

    def edited(self, edits: Mapping[cst.CSTNode, Callable[[Any], Any]]) -> cst.Module:
        """The module with several of its nodes changed, each by a function of what the edits below have made of it.

        A statement may become several, as a `cst.FlattenSentinel`.
        """
        module = self.module.visit(_Edits(edits))
        assert isinstance(module, cst.Module)
        return module


class _Edits(cst.CSTTransformer):
    def __init__(self, edits: Mapping[cst.CSTNode, Callable[[Any], Any]]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        change = self._edits.get(original_node)
        return updated_node if change is None else change(updated_node)


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all below it, in source order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.children))


def dotted(node: cst.CSTNode) -> str | None:
    """`self.model` for a name or a chain of attributes of one; None for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr.value}"
    return None


def related_line(finding: Finding, role: str) -> int:
    """The line of the first place with a role in the finding's file. Raises Refused."""
    lines = [r.line for r in finding.related if r.role == role and r.path == finding.span.path]
    if not lines:
        raise FixNotApplicable(f"the {role} stands in another file")
    return lines[0]


def quoted(tree: Tree, text: str) -> cst.SimpleString:
    """A text in the quotes that most texts of the file have."""
    marks = [node.value[0] for node in walk(tree.module) if isinstance(node, cst.SimpleString) and node.prefix == ""]
    single = marks.count("'") > marks.count('"')
    return cst.SimpleString(f"'{text}'" if single else f'"{text}"')


def bindings(nodes: Iterable[cst.CSTNode]) -> Iterator[str]:
    """The names and attributes that nodes bind, change or delete, as dotted text, once for each time."""
    for top in nodes:
        for node in walk(top):
            if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For | cst.CompFor | cst.Del):
                yield from _bound(node.target)
            elif isinstance(node, cst.AsName | cst.FunctionDef | cst.ClassDef | cst.Param):
                yield from _bound(node.name)
            elif isinstance(node, cst.ImportAlias) and node.asname is None:
                yield (dotted(node.name) or "").split(".")[0]


def written(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """The names and attributes that nodes bind, change or delete."""
    return set(bindings(nodes))


def read(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """The names and chains of attributes that occur in nodes, each chain whole."""
    found: set[str] = set()
    for top in nodes:
        stack = [top]
        while stack:
            node = stack.pop()
            text = dotted(node)
            if text is not None:
                found.add(text)
            elif isinstance(node, cst.Attribute | cst.Arg):  # of a call or subscript: its own name says nothing
                stack.append(node.value)
            else:
                stack.extend(node.children)
    return found


def is_docstring(statement: cst.CSTNode) -> bool:
    """Whether a statement is a plain text."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString | cst.ConcatenatedString)


def touched(reads: Iterable[str], writes: Iterable[str]) -> str | None:
    """The first of the names read that a write changes: itself or what it is an attribute of. None without one."""
    changed = set(writes)
    for name in sorted(reads):
        parts = name.split(".")
        if any(".".join(parts[:end]) in changed for end in range(1, len(parts) + 1)):
            return name
    return None


def split_blank(lines: Sequence[cst.EmptyLine]) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The blank lines at the beginning of a statement's leading lines, and the rest, which begins with a comment."""
    for index, line in enumerate(lines):
        if line.comment is not None:
            return list(lines[:index]), list(lines[index:])
    return list(lines), []


def _bound(target: cst.CSTNode) -> set[str]:
    text = dotted(target)
    if text is not None:
        return {text}
    if isinstance(target, cst.Tuple | cst.List):
        return set().union(*(_bound(element.value) for element in target.elements))
    if isinstance(target, cst.Subscript | cst.Attribute):
        return _bound(target.value)
    return set()


def _statements(block: Block) -> Sequence[Statement]:
    body = block.body
    return [statement for statement in body if isinstance(statement, Statement)]


def _blocks_in(node: cst.CSTNode) -> Iterator[Block]:
    """The blocks directly inside a compound statement: its body, and those of its else, elif, handlers, cases."""
    for child in node.children:
        if isinstance(child, cst.IndentedBlock):
            yield child
        elif isinstance(child, cst.Else | cst.If | cst.Finally | cst.ExceptHandler | cst.ExceptStarHandler | cst.MatchCase):
            yield from _blocks_in(child)
