"""Fixes that write something new: the call through the inner module (DDP401), the sampler's epoch (DDP302)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.tree import Refused, Step, Tree, bindings, dotted, written

GETATTR = "getattr"  # detail of a fix: the name may also hold the module without a wrapper


def call_inner_module(tree: Tree, finding: Finding) -> cst.Module:
    """`model(x)` as `model.module(x)`; as `getattr(model, "module", model)(x)` where the fix says that the wrap is conditional."""
    call = tree.at(cst.Call, finding)
    func = call.func
    inner = func.value if isinstance(func, cst.Attribute) and func.attr.value == "forward" else func
    if dotted(inner) is None:
        raise Refused("the wrapper is not called by a name")
    through: cst.BaseExpression = cst.Attribute(inner, cst.Name("module"))
    if finding.fix is not None and finding.fix.detail == GETATTR:
        arguments = [cst.Arg(inner), cst.Arg(cst.SimpleString('"module"')), cst.Arg(inner.deep_clone())]
        through = cst.Call(cst.Name("getattr"), arguments)
    return tree.replaced(inner, through)


def epoch_to_sampler(tree: Tree, finding: Finding) -> cst.Module:
    """`sampler.set_epoch(epoch)` as the first statement of the loop over epochs, where both are plain names."""
    call = tree.at(cst.Call, finding)
    if any(related.role == "set-epoch" for related in finding.related):
        raise Refused("set_epoch is called already, elsewhere or with another value")
    lines = [r.line for r in finding.related if r.role == "loop" and r.path == finding.span.path]
    way = tree.way_to(lines[0]) if lines else []
    loop = way[-1].statement if way else None
    if not isinstance(loop, cst.For) or tree.position(loop).start.line != lines[0]:
        raise Refused("the loop over epochs is no for statement of this file")
    if not isinstance(loop.target, cst.Name) or loop.target.value == "_":
        raise Refused("the loop over epochs has no plain name for the epoch")
    if not isinstance(loop.body, cst.IndentedBlock):
        raise Refused("the loop over epochs stands on one line")
    made = tree.way_to(finding.span.line)
    name = _name_given(made[-1].statement if made else None, call)
    if not _holds(made, way):
        raise Refused(f"{name} does not surely exist where the loop over epochs begins")
    if sum(bound == name for bound in bindings([_scope(tree, made)])) != 1:  # a scope around that of the loop, see _holds
        raise Refused(f"{name} is given more than one value")
    if loop.target.value in written([loop.body]):
        raise Refused(f"{loop.target.value} is changed inside the loop")
    told = cst.parse_statement(f"{name}.set_epoch({loop.target.value})")
    assert isinstance(told, cst.SimpleStatementLine)
    return tree.replaced(loop.body, loop.body.with_changes(body=[told, *loop.body.body]))


def _name_given(statement: cst.CSTNode | None, call: cst.Call) -> str:
    """The plain name that a statement gives to what a call returns. Raises Refused where it does anything else."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.Assign) and small.value is call and len(small.targets) == 1:
            target = small.targets[0].target
            if isinstance(target, cst.Name):
                return target.value
        if isinstance(small, cst.AnnAssign) and small.value is call and isinstance(small.target, cst.Name):
            return small.target.value
    raise Refused("the sampler has no plain name of its own")


def _holds(made: Sequence[Step], way: Sequence[Step]) -> bool:
    """Whether a statement has surely run where another begins: it stands before it in a block around it."""
    return any(step.block is made[-1].block and made[-1].index < step.index for step in way)


def _scope(tree: Tree, way: Iterable[Step]) -> cst.CSTNode:
    """The innermost function around the last step of a way, else the module."""
    functions = [step.statement for step in list(way)[:-1] if isinstance(step.statement, cst.FunctionDef)]
    return functions[-1] if functions else tree.module
