"""Fixes that take the local rank from where torchrun puts it: for a device (DDP601), for the old option (DDP507)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import keyword_of
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.scopes import given, has_run, names_in, scope_of
from ddp_audit.fix.tree import FixNotApplicable, Step, Tree, dotted, quoted, walk, written
from ddp_audit.lazy_regex import lazy_compile

TEXT = "text"  # detail of a fix: the device is a text with the rank in it, not the number
_KIND = lazy_compile(r"(cuda|xpu|npu|hip|mtia):$")


def by_local_rank(tree: Tree, finding: Finding) -> cst.Module:
    """The global rank of a device index as the local rank, by a name that holds it or from the environment."""
    places = list(_places(tree, finding))
    is_text = finding.fix is not None and finding.fix.detail == TEXT
    found = [_index(tree, place, is_text) for place in places]
    if not found:
        raise FixNotApplicable("the device is written in a way that is not known here")
    imports = Imports(tree, min(tree.position(node).start.line for node in found))
    ways = [tree.path_to(tree.position(node).start.line) for node in found]
    names = [held_local_rank(tree, way, imports) for way in ways]
    if all(names):
        return tree.edited({node: _name(str(name)) for node, name in zip(found, names, strict=True)})
    mark = _mark_inside(tree, found[0])
    key = quoted(tree, "LOCAL_RANK").value if mark is None else f"{mark}LOCAL_RANK{mark}"
    read = f"int({imports.wanted('os.environ', 'os')}[{key}])"
    way, after = _where_to_read(tree, finding, ways)
    scope = tree.module if way is None else scope_of(tree, way)
    if way is None or "local_rank" in names_in(scope) or "local_rank" in _of_the_module(tree):
        if len(found) > 1 or mark == "":
            raise FixNotApplicable("it is not clear where to read the local rank")
        return imports.put_into(tree.edited({found[0]: lambda _: cst.parse_expression(read)}))
    new = cst.parse_statement(f"local_rank = {read}")

    def with_read(statement: cst.SimpleStatementLine) -> cst.FlattenSentinel[cst.BaseStatement]:
        if after:
            return cst.FlattenSentinel([statement, new])
        return cst.FlattenSentinel(
            [new.with_changes(leading_lines=statement.leading_lines), statement.with_changes(leading_lines=[])]
        )

    return imports.put_into(tree.edited({way[-1].statement: with_read, **{node: _name("local_rank") for node in found}}))


def _name(text: str):  # type: ignore[no-untyped-def]
    return lambda _: cst.parse_expression(text)


def _places(tree: Tree, finding: Finding) -> Iterator[cst.CSTNode]:
    """The expressions that choose a device: that of the finding, and those on lines related to it with the same text."""
    span = finding.span
    yield _at(tree, (span.line, span.column - 1, span.end_line, span.end_column - 1))
    for related in finding.related:
        if related.role == "device" and related.path == span.path:
            for node in walk(tree.module):
                if (
                    isinstance(node, cst.Call | cst.List)
                    and tree.position(node).start.line == related.line
                    and _plain(tree.module.code_for_node(node)) == _plain(related.text)
                ):
                    yield node


def _at(tree: Tree, wanted: tuple[int, int, int, int]) -> cst.CSTNode:
    for node in walk(tree.module):
        if isinstance(node, cst.Call | cst.List | cst.Tuple):
            place = tree.position(node)
            if (place.start.line, place.start.column, place.end.line, place.end.column) == wanted:
                return node
    raise FixNotApplicable("the place of the finding is written in a way that is not known here")


def _plain(text: str) -> str:
    return " ".join(text.split())


def _index(tree: Tree, place: cst.CSTNode, is_text: bool) -> cst.CSTNode:
    """The expression of the global rank in what chooses a device."""
    if isinstance(place, cst.List | cst.Tuple):
        if not is_text and len(place.elements) == 1 and _is_rank(place.elements[0].value):
            return place.elements[0].value
        raise FixNotApplicable("device_ids is not a list of one rank")
    assert isinstance(place, cst.Call)
    values = [
        arg.value for arg in place.args if arg.star == "" and (arg.keyword is None or arg.keyword.value in ("index", "device"))
    ]
    numbers = [value for value in values if _is_rank(value) and not is_text and (len(values) > 1 or not _is_text_maker(place))]
    texts = [inner for value in values for inner in _in_texts(value)]
    if len(texts) == 1:
        return texts[0]
    if len(numbers) == 1 and not texts:
        return numbers[0]
    raise FixNotApplicable("the device is written in a way that is not known here")


def _is_text_maker(call: cst.Call) -> bool:
    """Whether the one argument of a call may be a text with the number in it: torch.device(device)."""
    return (dotted(call.func) or "").endswith("device") and not (dotted(call.func) or "").endswith("set_device")


def _in_texts(value: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The ranks in `f"cuda:{rank}"`, `"cuda:" + str(rank)`, `"cuda:%d" % rank` and `"cuda:{}".format(rank)` of an expression."""
    for node in walk(value):
        match node:
            case cst.FormattedString(parts=[cst.FormattedStringText(value=text), cst.FormattedStringExpression() as part]):
                if _KIND.fullmatch(text) and _is_rank(part.expression):
                    yield part.expression
            case cst.BinaryOperation(left=cst.SimpleString() as left, operator=cst.Add(), right=cst.Call(args=[arg]) as right):
                if _KIND.fullmatch(_text(left)) and dotted(right.func) == "str" and _is_rank(arg.value):
                    yield arg.value
            case cst.BinaryOperation(left=cst.SimpleString() as left, operator=cst.Modulo(), right=right):
                if re.fullmatch(r"\w+:%[ds]", _text(left)) and _is_rank(right):
                    yield right
            case cst.Call(func=cst.Attribute(value=cst.SimpleString() as left, attr=cst.Name(value="format")), args=[arg]):
                if re.fullmatch(r"\w+:\{\}", _text(left)) and _is_rank(arg.value):
                    yield arg.value


def _text(node: cst.SimpleString) -> str:
    return node.raw_value if not node.prefix else ""


def _is_rank(node: cst.CSTNode) -> bool:
    """Whether an expression reads as the rank: a name, or what asks for it."""
    if isinstance(node, cst.Call) and not node.args:
        return (dotted(node.func) or "").rsplit(".", 1)[-1] == "get_rank"
    if isinstance(node, cst.Call) and dotted(node.func) == "int" and len(node.args) == 1:
        return _reads(node.args[0].value, "RANK")
    name = (dotted(node) or "").rsplit(".", 1)[-1]
    return bool(name) and "device" not in name and name not in ("None", "True", "False")


def _reads(node: cst.CSTNode, variable: str) -> bool:
    """Whether an expression reads an environment variable: `os.environ[..]`, `os.environ.get(..)`, `os.getenv(..)`."""
    match node:
        case cst.Subscript(value=value, slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as key))]):
            return dotted(value) is not None and _text(key) == variable  # os.environ, or what was copied from it
        case cst.Call(func=func, args=[cst.Arg(value=cst.SimpleString() as key), *_]):
            return (dotted(func) or "").endswith(("environ.get", "getenv")) and _text(key) == variable
    return False


def held_local_rank(tree: Tree, way: Sequence[Step], imports: Imports) -> str | None:
    """A name that surely holds the local rank at the end of a way."""
    for name, value in given(tree, way):
        inner = (
            value.args[0].value if isinstance(value, cst.Call) and dotted(value.func) == "int" and len(value.args) == 1 else None
        )
        if inner is not None and _reads(inner, "LOCAL_RANK"):
            return name
        if isinstance(value, cst.Call) and imports.is_name_of(dotted(value.func), "torch.distributed.get_node_local_rank"):
            return name
    return None


def _where_to_read(tree: Tree, finding: Finding, ways: Sequence[Sequence[Step]]) -> tuple[Sequence[Step] | None, bool]:
    """The way to the statement where to read the local rank, and whether after it: what gives the rank, or the first use."""
    scopes = [scope_of(tree, way) for way in ways]
    for line in [r.line for r in finding.related if r.role == "rank" and r.path == finding.span.path]:
        way = tree.path_to(line)
        inside = bool(way) and _holds_rank(way[-1].statement) and not any(isinstance(s.statement, cst.ClassDef) for s in way)
        if inside and all(
            has_run(way, other) and scope in (scope_of(tree, way), scopes[0]) for other, scope in zip(ways, scopes, strict=True)
        ):
            return way, True
    first = ways[0]
    simple = isinstance(first[-1].statement, cst.SimpleStatementLine) and not isinstance(first[-1].statement.body[0], cst.Return)
    if (
        simple
        and all(scope is scopes[0] for scope in scopes)
        and all(has_run(first, other) or other[-1] == first[-1] for other in ways[1:])
    ):
        return first, False
    return None, False


def _of_the_module(tree: Tree) -> set[str]:
    """The names that the module's own statements bind."""
    return written(part for part in tree.module.body if not isinstance(part, cst.FunctionDef | cst.ClassDef))


def _holds_rank(statement: cst.CSTNode) -> bool:
    """Whether a statement does nothing but give the rank a name."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name)


def _mark_inside(tree: Tree, node: cst.CSTNode) -> str | None:
    """The quotes that a text may have inside of the f-string around a node; empty where none may, None outside of f-strings."""
    parents = tree.parents()
    around = []
    while node in parents:
        node = parents[node]
        if isinstance(node, cst.FormattedString):
            around.append(node.end[0])
    if not around:
        return None
    return {"'": '"', '"': "'"}[around[0]] if len(around) == 1 else ""


def local_rank_of_torchrun(tree: Tree, finding: Finding) -> cst.Module:
    """`default=0` of --local_rank as `default=int(os.environ.get("LOCAL_RANK", 0))`."""
    call = tree.at(cst.Call, finding)
    default = keyword_of(call, "default")
    number = default.value if default is not None else None
    if isinstance(number, cst.UnaryOperation):
        number = number.expression
    if default is None or not isinstance(number, cst.Integer) or keyword_of(call, "required") is not None:
        raise FixNotApplicable("the option has no number as its default")
    imports = Imports(tree, finding.span.line)
    names = imports.wanted("os.environ", "os")
    text = f"int({names}.get({quoted(tree, 'LOCAL_RANK').value}, {tree.module.code_for_node(default.value)}))"
    return imports.put_into(tree.replaced(default.value, cst.parse_expression(text)))
