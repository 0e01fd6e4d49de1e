"""Fixes that move statements: the sync flag above its forward (DDP112), the no_sync() block around its forward (DDP113)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.tree import Refused, Tree, read, split_blank, touched, written

_FLAG = "require_backward_grad_sync"


def flag_before_forward(tree: Tree, finding: Finding) -> cst.Module:
    """The assignment of the flag, or the `if` that holds nothing else, moved above the statement with the forward."""
    forward, flag, below = tree.meeting(_related_line(finding, "forward"), finding.span.line)
    statement = flag.statement
    if below and not isinstance(statement, cst.If):
        raise Refused("the flag is set inside a block that does more")
    if not _only_sets_flag(statement):
        raise Refused("the flag is not set by a statement of its own")
    body = list(forward.block.body)
    between = body[forward.index : flag.index]
    name = touched(read([statement]), written(between))
    if name is not None:
        raise Refused(f"what the flag is set to depends on {name}, which is not known before the forward")
    _, comments = split_blank(statement.leading_lines)
    moved = statement.with_changes(leading_lines=comments)
    return tree.with_block(forward.block, [*body[: forward.index], moved, *between, *body[flag.index + 1 :]])


def block_around_forward(tree: Tree, finding: Finding) -> cst.Module:
    """The statements from the forward to the no_sync() block moved into the block, before what it holds."""
    forward, place, below = tree.meeting(_related_line(finding, "forward"), finding.span.line)
    block = place.statement
    if below or not isinstance(block, cst.With):
        raise Refused("the forward and the no_sync() block do not stand in one block")
    if len(block.items) != 1:
        raise Refused("the with statement enters other contexts as well")
    body = list(forward.block.body)
    between = body[forward.index : place.index]
    name = touched(read([block.items[0].item]), written(between))
    if name is not None:
        raise Refused(f"the no_sync() block depends on {name}, which is not known before the forward")
    first = between[0]
    assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    blank, comments = split_blank(first.leading_lines)
    _, own_comments = split_blank(block.leading_lines)
    inside = [first.with_changes(leading_lines=comments), *between[1:], *_lines_of(block.body)]
    suite = block.body.with_changes(body=inside) if isinstance(block.body, cst.IndentedBlock) else cst.IndentedBlock(inside)
    widened = block.with_changes(leading_lines=[*blank, *own_comments], body=suite)
    return tree.with_block(forward.block, [*body[: forward.index], widened, *body[place.index + 1 :]])


def _related_line(finding: Finding, role: str) -> int:
    lines = [r.line for r in finding.related if r.role == role and r.path == finding.span.path]
    if not lines:
        raise Refused(f"the {role} stands in another file")
    return lines[0]


def _only_sets_flag(statement: cst.CSTNode) -> bool:
    """Whether a statement is an assignment of the flag, or an `if` of nothing but such assignments."""
    if isinstance(statement, cst.If):
        other = statement.orelse
        return all(_only_sets_flag(line) for line in _lines_of(statement.body)) and (
            other is None
            or (isinstance(other, cst.If) and _only_sets_flag(other))
            or (isinstance(other, cst.Else) and all(_only_sets_flag(line) for line in _lines_of(other.body)))
        )
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return False
    target = small.targets[0].target
    return isinstance(target, cst.Attribute) and target.attr.value == _FLAG


def _lines_of(suite: cst.BaseSuite) -> list[cst.BaseStatement]:
    """The statements of a block, or of a suite on the line of its colon."""
    if isinstance(suite, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)]
    return [line for line in suite.body if isinstance(line, cst.BaseStatement)]
