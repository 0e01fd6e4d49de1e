"""The fix that sets the current CUDA device before the process group is made (DDP602)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.devices import held_local_rank
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.tree import (
    FixNotApplicable,
    Statement,
    Step,
    Tree,
    dotted,
    quoted,
    read,
    related_line,
    split_blank,
    touched,
    walk,
    written,
)

WHERE_CUDA = "where-cuda"  # detail of a fix: the script also runs where there is no CUDA


def device_before_group(tree: Tree, finding: Finding) -> cst.Module:
    """`torch.cuda.set_device(local rank)` before init_process_group; one that stands behind it in the same block moves there."""
    line = related_line(finding, "init")
    way = tree.path_to(line)
    imports = Imports(tree, line)
    if not way or not _makes_group(way[-1].statement, imports):
        raise FixNotApplicable("the group is not made by a statement of its own")
    place = way[-1]
    late = [related.line for related in finding.related if related.role == "device"]
    body = list(place.block.body)
    group = place.statement
    blank, comments = split_blank(group.leading_lines)
    after = body[place.index + 1 :]
    if late:
        moved = _late(tree, finding, place, late[0], imports)
        after.remove(moved)
        new: Statement = moved.with_changes(leading_lines=[*blank, *split_blank(moved.leading_lines)[1]])
    else:
        number = held_local_rank(tree, way, imports)
        if number is None:
            number = f"int({imports.wanted('os.environ', 'os')}[{quoted(tree, 'LOCAL_RANK').value}])"
        text = f"{imports.wanted('torch.cuda.set_device', 'torch.cuda')}({number})"
        if finding.fix is not None and finding.fix.detail == WHERE_CUDA:
            text = f"if {imports.wanted('torch.cuda.is_available', 'torch.cuda')}():\n    {text}"
        made = cst.parse_statement(text)
        assert isinstance(made, Statement)
        new = made.with_changes(leading_lines=blank)
    both = [new, group.with_changes(leading_lines=comments)]
    return imports.put_into(tree.with_block(place.block, [*body[: place.index], *both, *after]))


def _makes_group(statement: cst.CSTNode, imports: Imports) -> bool:
    return any(
        isinstance(node, cst.Call) and imports.is_name_of(dotted(node.func), "torch.distributed.init_process_group")
        for node in walk(statement)
    ) and isinstance(statement, cst.SimpleStatementLine)


def _late(tree: Tree, finding: Finding, place: Step, line: int, imports: Imports) -> Statement:
    """The statement that sets the device in a line, where it can as well stand before the group is made. Raises Refused."""
    related = next(one for one in finding.related if one.role == "device")
    if related.path != finding.span.path:
        raise FixNotApplicable("the device is set in another file")
    way = tree.path_to(line)
    step = way[-1] if way else None
    if (
        step is None
        or step.block is not place.block
        or step.index <= place.index
        or not imports.is_call_of(step.statement, "torch.cuda.set_device")
    ):
        raise FixNotApplicable("the device is not set by a statement of its own behind the making of the group")
    between = place.block.body[place.index : step.index]
    name = touched(read([step.statement]), written(between))
    if name is not None:
        raise FixNotApplicable(f"the device depends on {name}, which is not known before the group is made")
    if any(isinstance(node, cst.Call) and "rank" in (dotted(node.func) or "") for node in walk(step.statement)):
        raise FixNotApplicable("the device depends on the rank, which is not known before the group is made")
    return step.statement
