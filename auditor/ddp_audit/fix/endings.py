"""The fix that destroys the process group on every way out (DDP604)."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.tree import Block, FixNotApplicable, Statement, Step, Tree, dotted, split_blank, walk

NORMAL, MISSING, CONDITIONAL = "moved", "added", "added-if-made"  # first word of a fix's detail, before lines; see the rule
_MOST_LINES, _FEW_LINES = 30, 10  # what is longer is not moved to the right; with a caller that can be, what is not short
_DEFINES = (cst.FunctionDef, cst.ClassDef)


def destroyed_at_last(tree: Tree, finding: Finding) -> cst.Module:
    """What follows init_process_group in its block under `try:`, and destroy_process_group, moved there or new, in `finally:`."""
    how, *lines = (finding.fix.detail if finding.fix is not None else "").split()
    if how == NORMAL:
        init, destroy, below = tree.common_block(int(lines[0]), finding.span.line)
        inside = tree.path_to(int(lines[0]))
        if any(isinstance(step.statement, _DEFINES) for step in inside[inside.index(_same(inside, init)) :]):
            raise FixNotApplicable("the group is made in another function")
        if below or not _only_destroys(destroy.statement):
            raise FixNotApplicable("the group is destroyed by a statement that does more")
        return _around(tree, init, destroy.index, destroy.statement)
    if how not in (MISSING, CONDITIONAL):
        raise FixNotApplicable("where the work begins is not known")
    line, above = map(int, lines)
    way = tree.path_to(line)
    init = _where_the_work_begins(way)
    imports = Imports(tree, line)
    direct = init.statement is way[-1].statement and isinstance(init.statement, cst.SimpleStatementLine) and how == MISSING
    if not above or _length(tree, init.block.body[init.index + 1 :]) <= _FEW_LINES:
        new = _destroy(tree, imports, line, asked=not direct)
        return imports.put_into(_around(tree, init, len(init.block.body), new))
    call = tree.path_to(above)[-1]
    if not isinstance(call.statement, cst.SimpleStatementLine):
        raise FixNotApplicable("the function that works is not called by a statement of its own")
    blank, comments = split_blank(call.statement.leading_lines)
    at_last = cst.Finally(cst.IndentedBlock([_destroy(tree, imports, line, asked=True)]))
    body = cst.IndentedBlock([call.statement.with_changes(leading_lines=comments)])
    whole = cst.Try(body, finalbody=at_last, leading_lines=blank)
    return imports.put_into(tree.edited({call.statement: lambda _: whole}))


def _length(tree: Tree, statements: Sequence[cst.CSTNode]) -> int:
    """The number of lines from the first statement to the last."""
    if not statements:
        return 0
    return tree.position(statements[-1]).end.line - tree.position(statements[0]).start.line + 1


def _around(tree: Tree, init: Step, end: int, destroy: Statement) -> cst.Module:
    """The statements behind `init` and before number `end` of its block in `try:`, with `destroy` in `finally:`."""
    body = list(init.block.body)
    work = body[init.index + 1 : end]
    if not work:
        raise FixNotApplicable("nothing stands between the two")
    if (length := _length(tree, work)) > _MOST_LINES:
        raise FixNotApplicable(f"{length} lines would move to the right")
    if isinstance(init.block, cst.Module) and any(isinstance(part, _DEFINES) for part in work):
        raise FixNotApplicable("functions are defined behind the place where the group is made")
    first = work[0]
    assert isinstance(first, Statement)
    blank, comments = split_blank(first.leading_lines)
    _, own = split_blank(destroy.leading_lines)
    inside = cst.IndentedBlock([first.with_changes(leading_lines=comments), *work[1:]])
    at_last = cst.Finally(cst.IndentedBlock([destroy.with_changes(leading_lines=own)]))
    whole = cst.Try(inside, finalbody=at_last, leading_lines=blank)
    return tree.with_block(init.block, [*body[: init.index + 1], whole, *body[end + 1 :]])


def _same(way: list[Step], step: Step) -> Step:
    return next(one for one in way if one.block is step.block)


def _where_the_work_begins(way: list[Step]) -> Step:
    """The statement of a function's body (or the module's) that makes the group, or of what stands under `if __name__ ..`."""
    found = None
    for index, step in enumerate(way):
        above = way[index - 1].statement if index else None
        if above is None or isinstance(above, _DEFINES) or (isinstance(above, cst.If) and "__name__" in _names(above.test)):
            found = step
    if found is None:
        raise FixNotApplicable("where the work begins is not known")
    return found


def _names(node: cst.CSTNode) -> set[str]:
    return {part.value for part in walk(node) if isinstance(part, cst.Name)}


def _only_destroys(statement: Statement) -> bool:
    """Whether a statement is one call, or an `if` that holds nothing but one."""
    if isinstance(statement, cst.If):
        block: Block | cst.BaseSuite = statement.body
        inner = block.body if isinstance(block, cst.IndentedBlock) else []
        return statement.orelse is None and len(inner) == 1 and _only_destroys(inner[0])  # type: ignore[arg-type]
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and isinstance(small.value, cst.Call)


def _destroy(tree: Tree, imports: Imports, line: int, asked: bool) -> Statement:
    """The call that destroys the group, by the name under which it is made where that is seen; under a test where `asked`."""
    name = None
    for node in walk(tree.module):
        if isinstance(node, cst.Call) and tree.position(node).start.line == line:
            made = dotted(node.func) or ""
            if imports.is_name_of(made, "torch.distributed.init_process_group"):
                name = made
    names = []
    for what in ("destroy_process_group", *(["is_initialized"] if asked else [])):
        if name is None:
            names.append(imports.wanted(f"torch.distributed.{what}", "torch.distributed"))
        elif "." in name:
            names.append(f"{name.rpartition('.')[0]}.{what}")
        else:
            names.append(imports.take("torch.distributed", what))
    text = f"if {names[1]}():\n    {names[0]}()" if asked else f"{names[0]}()"
    new = cst.parse_statement(text)
    assert isinstance(new, Statement)
    return new
