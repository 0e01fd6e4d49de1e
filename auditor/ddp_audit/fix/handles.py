"""The fix that waits for an asynchronous operation before its buffer is used (DDP208)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import keyword_of, without_argument
from ddp_audit.fix.scopes import has_run
from ddp_audit.fix.tree import FixNotApplicable, Step, Tree, related_line, split_blank, walk, written

_MESSAGES = ("isend", "irecv")


def waited_first(tree: Tree, finding: Finding) -> cst.Module:
    """`handle.wait()` before the statement that uses the buffer, moved there where it comes later; without a handle no async_op."""
    started = tree.path_to(related_line(finding, "collective"))
    used = tree.path_to(finding.span.line)
    if not started or not used or not has_run(started, used):
        raise FixNotApplicable("the operation is not surely started where its buffer is used")
    call, handle = _started(started[-1].statement)
    if handle is None:
        return tree.edited({call: lambda c: without_argument(c, "async_op")})
    start = next(step for step in used if step.block is started[-1].block)
    between = list(start.block.body[started[-1].index + 1 : start.index + 1])
    if handle in written(between):
        raise FixNotApplicable(f"{handle} is given another value before the buffer is used")
    place = used[-1]
    later = _wait_behind(place, handle)
    if later is None and (_name(call) in _MESSAGES or keyword_of(call, "group") is not None):
        raise FixNotApplicable(f"nothing waits for {handle} behind the use in its block")  # twice, or for the None of no member
    use = place.statement
    blank, comments = split_blank(use.leading_lines)
    if later is None:
        wait: cst.BaseStatement = cst.parse_statement(f"{handle}.wait()")
        new = [wait.with_changes(leading_lines=blank), use.with_changes(leading_lines=comments)]
        return tree.with_block(place.block, _with(place, new, None))
    moved = later.statement.with_changes(leading_lines=[*blank, *split_blank(later.statement.leading_lines)[1]])
    return tree.with_block(place.block, _with(place, [moved, use.with_changes(leading_lines=comments)], later.index))


def _started(statement: cst.CSTNode) -> tuple[cst.Call, str | None]:
    """The call that a statement is, and the plain name that it gives to the handle. Raises Refused for every other statement."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    handle = None
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
        handle = small.targets[0].target.value
    elif not isinstance(small, cst.Expr):
        raise FixNotApplicable("the handle has no plain name")
    call = small.value
    if not isinstance(call, cst.Call) or (_name(call) not in _MESSAGES and keyword_of(call, "async_op") is None):
        raise FixNotApplicable("the operation is started in a way that is not known here")
    if handle is None and _name(call) in _MESSAGES:
        raise FixNotApplicable("the handle is not kept")
    return call, handle


def _name(call: cst.Call) -> str:
    func = call.func
    return func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""


def _wait_behind(place: Step, handle: str) -> Step | None:
    """The first `handle.wait()` behind a statement in its block, where nothing before it gives the name another value."""
    body = place.block.body
    for index in range(place.index, len(body)):
        statement = body[index]
        if index > place.index and _is_wait(statement, handle):
            return Step(place.block, index)
        if handle in written([statement]) or any(_is_wait(part, handle) for part in walk(statement)):
            return None
    return None


def _is_wait(statement: cst.CSTNode, handle: str) -> bool:
    """Whether a statement is `handle.wait()` and nothing else."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    match statement.body[0]:
        case cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="wait")), args=[])):
            return name == handle
    return False


def _with(place: Step, new: list[cst.BaseStatement], without: int | None) -> list[cst.CSTNode]:
    """The statements of a block with others in the place of one, and one of the later ones left out."""
    body = list(place.block.body)
    rest = [statement for index, statement in enumerate(body) if index > place.index and index != without]
    return [*body[: place.index], *new, *rest]
