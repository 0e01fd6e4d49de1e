"""Fixes inside of one expression: an argument (DDP107, DDP603), a call of what is named (DDP212), an order (DDP206)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import with_argument
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.tree import FixNotApplicable, Tree, dotted, quoted, related_line

_LOAD = ("path", "map_location", "pickle_module")  # torch.load(f, map_location=None, pickle_module=None, ..)


def load_to_cpu(tree: Tree, finding: Finding) -> cst.Module:
    """`map_location="cpu"` given to torch.load."""
    call = tree.at(cst.Call, finding)
    cpu = quoted(tree, "cpu")
    plain = [arg for arg in call.args if arg.keyword is None and arg.star == ""]
    if any(arg.star for arg in call.args) or len(plain) > len(_LOAD):
        raise FixNotApplicable("the arguments of the load are not all written out")
    if len(plain) > 1:
        return tree.replaced(plain[1].value, cpu)
    return tree.replaced(call, with_argument(call, "map_location", cpu))


def not_reentrant(tree: Tree, finding: Finding) -> cst.Module:
    """`use_reentrant=False` given to torch.utils.checkpoint.checkpoint."""
    call = tree.at(cst.Call, finding)
    if any(arg.star == "**" for arg in call.args):
        raise FixNotApplicable("the arguments of the checkpoint are not all written out")
    names = Imports(tree, finding.span.line)
    known = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")
    if not any(names.is_name_of(dotted(call.func), name) for name in known):
        raise FixNotApplicable("the checkpoint is not called by a name of torch's")
    return tree.replaced(call, with_argument(call, "use_reentrant", cst.Name("False")))


def called(tree: Tree, finding: Finding) -> cst.Module:
    """`is_main_process` as `is_main_process()`."""
    parents = tree.parents()
    for kind in (cst.Attribute, cst.Name):
        try:
            node = tree.at(kind, finding)
        except FixNotApplicable:
            continue
        parent = parents[node]
        if isinstance(parent, cst.Call) and parent.func is node:
            raise FixNotApplicable("it is called here")
        if dotted(node) is None:
            break
        return tree.replaced(node, cst.Call(node))
    raise FixNotApplicable("the function is not given by a name")


def in_order(tree: Tree, finding: Finding) -> cst.Module:
    """`for name in names:` as `for name in sorted(names):`."""
    line = related_line(finding, "loop")
    way = tree.path_to(line)
    loop = way[-1].statement if way else None
    if not isinstance(loop, cst.For) or tree.position(loop).start.line != line:
        raise FixNotApplicable("the loop is not a for statement of its own")
    over: cst.BaseExpression = loop.iter
    if isinstance(over, cst.Call) and dotted(over.func) == "enumerate" and over.args:
        over = over.args[0].value
    if isinstance(over, cst.Call) and dotted(over.func) in ("zip", "reversed", "map", "filter", "list", "tuple", "iter", "sorted"):
        raise FixNotApplicable("the loop goes over what another function makes of the elements")
    if isinstance(over, cst.GeneratorExp | cst.ListComp):
        raise FixNotApplicable("the loop goes over a comprehension")
    bare = over.with_changes(lpar=[], rpar=[]) if isinstance(over, cst.BinaryOperation) else over
    if isinstance(over, cst.Tuple) and not over.lpar:
        raise FixNotApplicable("the loop goes over a tuple")
    return tree.replaced(over, cst.Call(cst.Name("sorted"), [cst.Arg(bare)]))


def unscaled_first(tree: Tree, finding: Finding) -> cst.Module:
    """`scaler.unscale_(optimizer)` before the statement that clips, each run of which `scaler.step(optimizer)` surely follows."""
    around, step, below = tree.common_block(finding.span.line, related_line(finding, "step"))
    way = tree.path_to(finding.span.line)
    inside = way[next(i for i, one in enumerate(way) if one.block is around.block) : -1]
    if below or not all(isinstance(one.statement, cst.If) for one in inside):
        raise FixNotApplicable("the clip may run without the step, or more often")
    small = step.statement.body[0] if isinstance(step.statement, cst.SimpleStatementLine) else None
    call = small.value if isinstance(small, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute) or len(call.args) != 1:
        raise FixNotApplicable("the step is written in a way that is not known here")
    scaler, optimizer = dotted(call.func.value), dotted(call.args[0].value)
    clip = way[-1].statement
    if scaler is None or optimizer is None or call.func.attr.value != "step" or call.args[0].star:
        raise FixNotApplicable("the step is written in a way that is not known here")
    if not isinstance(clip, cst.SimpleStatementLine):
        raise FixNotApplicable("the clip does not stand in a statement of its own")
    new = cst.parse_statement(f"{scaler}.unscale_({optimizer})").with_changes(leading_lines=clip.leading_lines)
    return tree.edited({clip: lambda statement: cst.FlattenSentinel([new, statement.with_changes(leading_lines=[])])})
