"""Fixes that move statements: the sync flag above its forward (DDP112), the no_sync() block around its forward (DDP113)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.tree import FixNotApplicable, Statement, Tree, read, related_line, split_blank, touched, walk, written

_FLAG = "require_backward_grad_sync"


def flag_before_forward(tree: Tree, finding: Finding) -> cst.Module:
    """The assignment of the flag, or the `if` that holds nothing else, moved above the statement with the forward."""
    forward, flag, below = tree.common_block(related_line(finding, "forward"), finding.span.line)
    statement = flag.statement
    if below and not isinstance(statement, cst.If):
        raise FixNotApplicable("the flag is set inside a block that does more")
    if not _only_sets_flag(statement):
        raise FixNotApplicable("the flag is not set by a statement of its own")
    body = list(forward.block.body)
    between = body[forward.index : flag.index]
    name = touched(read([statement]), written(between))
    if name is not None:
        raise FixNotApplicable(f"what the flag is set to depends on {name}, which is not known before the forward")
    _, comments = split_blank(statement.leading_lines)
    moved = statement.with_changes(leading_lines=comments)
    return tree.with_block(forward.block, [*body[: forward.index], moved, *between, *body[flag.index + 1 :]])


def block_around_forward(tree: Tree, finding: Finding) -> cst.Module:
    """The statements from the forward to the no_sync() block moved into the block, before what it holds.

    An `if` with the block in one arm and the same statements in the other becomes one block, whose context the condition chooses.
    """
    forward, place, below = tree.common_block(related_line(finding, "forward"), finding.span.line)
    block = place.statement
    imports = Imports(tree, finding.span.line)
    rest: list[Statement] = []
    if below and isinstance(block, cst.If):
        block, rest = _one_block(tree, block, imports)
    elif below or not isinstance(block, cst.With):
        raise FixNotApplicable("the forward and the no_sync() block do not stand in one block")
    if len(block.items) != 1:
        raise FixNotApplicable("the with statement enters other contexts as well")
    body = list(forward.block.body)
    between = body[forward.index : place.index]
    name = touched(read([block.items[0].item]), written(between))
    if name is not None:
        raise FixNotApplicable(f"the no_sync() block depends on {name}, which is not known before the forward")
    first = between[0]
    assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    blank, comments = split_blank(first.leading_lines)
    _, own_comments = split_blank(block.leading_lines)
    inside = [first.with_changes(leading_lines=comments), *between[1:], *_lines_of(block.body)]
    suite = block.body.with_changes(body=inside) if isinstance(block.body, cst.IndentedBlock) else cst.IndentedBlock(inside)
    widened = block.with_changes(leading_lines=[*blank, *own_comments], body=suite)
    return imports.put_into(tree.with_block(forward.block, [*body[: forward.index], widened, *rest, *body[place.index + 1 :]]))


def _one_block(tree: Tree, choice: cst.If, imports: Imports) -> tuple[cst.With, list[Statement]]:
    """An `if` with no_sync() in one arm as one with statement, and what only the other arm does, under the opposite condition."""
    if not isinstance(choice.orelse, cst.Else):
        raise FixNotApplicable("the forward and the no_sync() block do not stand in one block")
    arms = [_lines_of(choice.body), _lines_of(choice.orelse.body)]
    quiet = next((i for i, arm in enumerate(arms) if len(arm) == 1 and isinstance(arm[0], cst.With)), None)
    if quiet is None:
        raise FixNotApplicable("the no_sync() block does not stand alone in an arm of its condition")
    block, other = arms[quiet][0], arms[1 - quiet]
    assert isinstance(block, cst.With)
    held = _lines_of(block.body)
    if len(block.items) != 1 or block.items[0].asname is not None or [*map(_code, held)] != [*map(_code, other[: len(held)])]:
        raise FixNotApplicable("the two arms of the condition do not run the same backward")
    rest = other[len(held) :]
    if rest and any(isinstance(node, cst.Call | cst.NamedExpr) for node in walk(choice.test)):
        raise FixNotApplicable("the condition would be asked twice")
    if any("no_sync" in _code(part) for part in rest):
        raise FixNotApplicable("the other arm does more than the same backward")
    no_sync = block.items[0].item
    nothing = cst.parse_expression(f"{imports.wanted('contextlib.nullcontext')}()")
    arms_of = (no_sync, nothing) if quiet == 0 else (nothing, no_sync)
    test = choice.test
    if isinstance(test, cst.IfExp | cst.Lambda | cst.NamedExpr) and not test.lpar:
        test = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    item = cst.IfExp(test=test, body=arms_of[0], orelse=arms_of[1])
    blank, comments = split_blank(choice.leading_lines)
    told = [_with_comment(mine, its) for mine, its in zip(held, other, strict=False)]
    told[0] = told[0].with_changes(leading_lines=[*comments, *split_blank(told[0].leading_lines)[1]])
    header = block.body.header if isinstance(block.body, cst.IndentedBlock) else cst.TrailingWhitespace()
    whole = cst.With([cst.WithItem(item)], cst.IndentedBlock(told, header=header), leading_lines=blank)
    if not rest:
        return whole, []
    asked = _opposite(choice.test) if quiet == 0 else choice.test
    return whole, [cst.If(asked, cst.IndentedBlock(rest))]


def _with_comment(statement: Statement, other: Statement) -> Statement:
    """A statement with the comment behind an equal one, where it has none of its own."""
    if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(other, cst.SimpleStatementLine):
        return statement
    if statement.trailing_whitespace.comment is not None:
        return statement
    return statement.with_changes(trailing_whitespace=other.trailing_whitespace)


_OPPOSITES: dict[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {cst.Equal: cst.NotEqual, cst.NotEqual: cst.Equal}


def _opposite(test: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return test.expression
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        operator = _OPPOSITES.get(type(test.comparisons[0].operator))
        if operator is not None:
            return test.with_changes(comparisons=[test.comparisons[0].with_changes(operator=operator())])
    bare = isinstance(test, cst.Name | cst.Attribute | cst.Subscript) or bool(test.lpar)
    inner = test if bare else test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(cst.Not(), inner)


def _code(statement: Statement) -> str:
    """The code of a statement without the comments around it."""
    return cst.Module([statement.with_changes(leading_lines=[])]).code.split("#")[0].strip()


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


def _lines_of(suite: cst.BaseSuite) -> list[Statement]:
    """The statements of a block, or of a suite on the line of its colon."""
    if isinstance(suite, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)]
    return [line for line in suite.body if isinstance(line, Statement)]
