"""Fixes at conditions on the rank: a collective taken out of one (DDP201, DDP202), a write put under one (DDP701)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import keyword_of, with_argument
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.scopes import given
from ddp_audit.fix.tree import FixNotApplicable, Step, Tree, dotted, read, related_line, split_blank, touched, walk, written

EXIST_OK, ONE_RANK = "exist-ok", "one-rank"  # detail of a fix of DDP701


def out_of_the_guard(tree: Tree, finding: Finding) -> cst.Module:
    """The collective with which the body of an `if` begins, before the `if`; a barrier at the end of the body, behind it."""
    call = tree.at(cst.Call, finding)
    way = tree.path_to(finding.span.line)
    if len(way) < 2 or not isinstance(way[-2].statement, cst.If) or not _is_the_call(way[-1].statement, call):
        raise FixNotApplicable("the collective is not a statement of its own in the body of the condition")
    guard, place = way[-2].statement, way[-1]
    if place.block is not guard.body or guard.orelse is not None or _is_elif(tree, way[-2], guard):
        raise FixNotApplicable("the condition has other arms")
    if tree.position(guard).start.line != related_line(finding, "guard"):
        raise FixNotApplicable("the condition on the rank is another one")
    if any(isinstance(node, cst.BooleanOperation) for node in walk(guard.test)):
        raise FixNotApplicable("the condition is not on the rank alone")
    name = touched(read([guard.test]), written([place.statement]))
    if name is not None:
        raise FixNotApplicable(f"the condition depends on {name}")
    body = list(place.block.body)
    is_barrier = (dotted(call.func) or "").rsplit(".", 1)[-1] == "barrier"
    rest = [*body[: place.index], *body[place.index + 1 :]]
    around = list(way[-2].block.body)
    blank, comments = split_blank(guard.leading_lines)
    moved = place.statement
    if not rest:
        new: list[cst.CSTNode] = [moved.with_changes(leading_lines=[*guard.leading_lines, *split_blank(moved.leading_lines)[1]])]
    elif place.index == 0:
        first = rest[0]
        assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        rest[0] = first.with_changes(leading_lines=split_blank(first.leading_lines)[1])
        kept = guard.with_changes(leading_lines=comments, body=guard.body.with_changes(body=rest))
        new = [moved.with_changes(leading_lines=[*blank, *split_blank(moved.leading_lines)[1]]), kept]
    elif is_barrier and place.index == len(body) - 1:
        used = touched(read([moved]), written(rest))
        if used is not None:
            raise FixNotApplicable(f"the barrier depends on {used}")
        kept = guard.with_changes(body=guard.body.with_changes(body=rest))
        new = [kept, moved.with_changes(leading_lines=split_blank(moved.leading_lines)[1])]
    else:
        raise FixNotApplicable("other work comes before the collective")
    index = way[-2].index
    return tree.with_block(way[-2].block, [*around[:index], *new, *around[index + 1 :]])


def one_writer(tree: Tree, finding: Finding) -> cst.Module:
    """`exist_ok=True` for a folder; for a save, `if rank == 0:` around its statement."""
    if finding.fix is not None and finding.fix.detail == EXIST_OK:
        return _exist_ok(tree, finding)
    call = tree.at(cst.Call, finding)
    way = tree.path_to(finding.span.line)
    if not way or not _is_the_call(way[-1].statement, call):
        raise FixNotApplicable("the file is not written by a statement of its own")
    place = way[-1]
    imports = Imports(tree, finding.span.line)
    asked = next((name for name, value in given(tree, way) if _gives_rank(value, imports)), None)
    if asked is None:
        asked = f"{imports.wanted('torch.distributed.get_rank', 'torch.distributed')}()"
    statement = place.statement
    test = cst.parse_expression(f"{asked} == 0")
    guard = cst.If(test, cst.IndentedBlock([statement.with_changes(leading_lines=[])]), leading_lines=statement.leading_lines)
    return imports.put_into(tree.edited({statement: lambda _: guard}))


def _exist_ok(tree: Tree, finding: Finding) -> cst.Module:
    call = tree.at(cst.Call, finding)
    if any(arg.star == "**" for arg in call.args) or keyword_of(call, "exist_ok") is not None:
        raise FixNotApplicable("the arguments of the call are not all written out")
    imports = Imports(tree, finding.span.line)
    name = dotted(call.func)
    if imports.is_name_of(name, "os.mkdir"):
        if len(call.args) != 1:
            raise FixNotApplicable("the folder is made with a mode of its own")
        call_of = cst.parse_expression(imports.wanted("os.makedirs", "os"))
        return imports.put_into(
            tree.edited({call: lambda c: with_argument(c.with_changes(func=call_of), "exist_ok", cst.Name("True"))})
        )
    is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value == "mkdir"
    if not imports.is_name_of(name, "os.makedirs") and not is_method:
        raise FixNotApplicable("the folder is made in a way that is not known here")
    return tree.edited({call: lambda c: with_argument(c, "exist_ok", cst.Name("True"))})


def _gives_rank(value: cst.BaseExpression, imports: Imports) -> bool:
    return isinstance(value, cst.Call) and not value.args and imports.is_name_of(dotted(value.func), "torch.distributed.get_rank")


def _is_the_call(statement: cst.CSTNode, call: cst.Call) -> bool:
    """Whether a statement is nothing but a call."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and small.value is call


def _is_elif(tree: Tree, step: Step, guard: cst.If) -> bool:
    """Whether an `if` is the `elif` of another one."""
    return any(isinstance(node, cst.If) and node.orelse is guard for node in walk(step.block))
