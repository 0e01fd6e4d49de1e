"""Fixes for what a loader draws: a DistributedSampler of its own (DDP301), and the sampler's epoch (DDP302)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import keyword_of, with_argument
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.scopes import epoch_loop, has_run, names_in, scope_of
from ddp_audit.fix.tree import FixNotApplicable, Tree, bindings, dotted, related_line, touched, written

UNLESS_ALONE = "unless-alone"  # detail of a fix: the script also runs without a process group
BY_LOADER = "by-loader"  # detail of a fix: the sampler has no name, and the loader that holds it has one
_SAMPLER = ("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler")
_BETWEEN = (cst.Lambda, cst.BaseComp, cst.IfExp, cst.BooleanOperation)  # expressions that may run never, or often


def sampler_of_its_own(tree: Tree, finding: Finding) -> cst.Module:
    """A DistributedSampler before the loader, given to it in the place of `shuffle`, and given the epoch where it shuffles."""
    call = tree.at(cst.Call, finding)
    imports = Imports(tree, finding.span.line)
    if not imports.is_name_of(dotted(call.func), "torch.utils.data.DataLoader"):
        raise FixNotApplicable("the loader is not called by a name of torch's")
    plain = [arg for arg in call.args if arg.keyword is None]
    if any(arg.star for arg in call.args) or len(plain) > 3:
        raise FixNotApplicable("the arguments of the loader are not all written out by name")
    for name in ("sampler", "batch_sampler"):
        old = keyword_of(call, name)
        if old is not None and dotted(old.value) != "None":
            raise FixNotApplicable(f"the loader has a {name} already")
    data = plain[0] if plain else keyword_of(call, "dataset")
    if data is None or dotted(data.value) is None:
        raise FixNotApplicable("the data set has no plain name")
    place = tree.holding(call)
    if len(place.statement.body) != 1 or _may_not_run(tree, call, place.statement):  # type: ignore[arg-type]
        raise FixNotApplicable("the loader is not made by a statement of its own")
    shuffle = plain[2] if len(plain) > 2 else keyword_of(call, "shuffle")
    shuffles = "False" if shuffle is None else tree.module.code_for_node(shuffle.value)
    name = _new_name(tree, place.statement)
    alone = finding.fix is not None and finding.fix.detail == UNLESS_ALONE
    if alone and shuffles not in ("True", "False"):
        raise FixNotApplicable("whether the loader shuffles is decided elsewhere")
    made = f"{_class(imports, call)}({dotted(data.value)}{'' if shuffles == 'True' else f', shuffle={shuffles}'})"
    if alone:
        made += f" if {imports.wanted('torch.distributed.is_initialized', 'torch.distributed')}() else None"
    edits: dict[cst.CSTNode, Callable[[Any], Any]] = {
        call: lambda _: _with_sampler(call, name, shuffle, alone),
        place.statement: lambda statement: cst.FlattenSentinel(
            [
                cst.parse_statement(f"{name} = {made}").with_changes(leading_lines=statement.leading_lines),
                statement.with_changes(leading_lines=[]),
            ]
        ),
    }
    told = f"{name}.set_epoch({{epoch}})" if not alone else f"if {name} is not None:\n    {name}.set_epoch({{epoch}})"
    if shuffles != "False":
        edits |= _epoch_told(tree, finding, told)
    return imports.put_into(tree.edited(edits))


def epoch_to_sampler(tree: Tree, finding: Finding) -> cst.Module:
    """`sampler.set_epoch(epoch)` as the first statement of the loop over epochs; a call that stands before the loop moves there."""
    call = tree.at(cst.Call, finding)
    line = related_line(finding, "loop")
    loop, epoch = epoch_loop(tree, line)
    if any(related.role == "set-epoch" for related in finding.related):
        return _told_again(tree, finding, loop, epoch)
    way = tree.path_to(line)
    made = tree.path_to(finding.span.line)
    if not made or _may_not_run(tree, call, made[-1].statement):
        raise FixNotApplicable("the sampler is not always made")
    name = _name_given(made[-1].statement, call)
    by_loader = finding.fix is not None and finding.fix.detail.startswith(BY_LOADER)
    if by_loader:
        name = finding.fix.detail.partition(" ")[2]  # type: ignore[union-attr]
        if touched([name], written([loop])) is not None:
            raise FixNotApplicable(f"{name} is changed inside the loop")
        name += ".sampler"
    elif name is None:
        raise FixNotApplicable("the sampler has no plain name of its own")
    elif not has_run(made, way):
        raise FixNotApplicable(f"{name} does not surely exist where the loop over epochs begins")
    elif sum(bound == name for bound in bindings([scope_of(tree, made)])) != 1:  # a scope around that of the loop, see has_run
        raise FixNotApplicable(f"{name} is given more than one value")
    return tree.edited({loop.body: _on_top(f"{name}.set_epoch({epoch})")})


def _told_again(tree: Tree, finding: Finding, loop: cst.For, epoch: str) -> cst.Module:
    """A set_epoch that is called before the loop over epochs, or with a constant in it, made right."""
    line = related_line(finding, "set-epoch")
    way = tree.path_to(line)
    statement = way[-1].statement if way else None
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    call = small.value if isinstance(small, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute) or call.func.attr.value != "set_epoch":
        raise FixNotApplicable("set_epoch is called in a way that is not known here")
    name = dotted(call.func)
    if name is None or len(call.args) != 1 or call.args[0].star:
        raise FixNotApplicable("set_epoch is called in a way that is not known here")
    inside = next((step for step in way if step.statement is loop), None)
    if inside is not None:
        if not isinstance(call.args[0].value, cst.Integer) or any(
            isinstance(s.statement, cst.FunctionDef) for s in way[way.index(inside) :]
        ):
            raise FixNotApplicable("set_epoch is called elsewhere or with another value")
        return tree.edited({call.args[0].value: lambda _: cst.Name(epoch)})
    around = tree.path_to(tree.position(loop).start.line)
    if not has_run(way, around) or scope_of(tree, way) is not scope_of(tree, around):
        raise FixNotApplicable("set_epoch is called elsewhere or with another value")
    sampler = name.removesuffix(".set_epoch")
    if touched([sampler], written([loop])) is not None or len(way[-1].block.body) < 2 or statement is None:
        raise FixNotApplicable(f"{sampler} is changed inside the loop")
    moved = statement.with_changes(
        body=[cst.Expr(call.with_changes(args=[call.args[0].with_changes(value=cst.Name(epoch))]))], leading_lines=[]
    )
    return tree.edited(
        {
            statement: lambda _: cst.RemoveFromParent(),
            loop.body: lambda body: body.with_changes(body=[moved, *body.body]),
        }
    )


def _epoch_told(tree: Tree, finding: Finding, told: str) -> dict[cst.CSTNode, Callable[[Any], Any]]:
    """set_epoch in the loop around that over the batches, where it is surely one over epochs; else nothing (DDP302 tells)."""
    lines = [r.line for r in finding.related if r.role == "loop" and r.path == finding.span.path]
    way = tree.path_to(lines[0]) if lines else []
    made = tree.path_to(finding.span.line)
    if not way or not has_run(made, way):
        return {}
    start = next(index for index, step in enumerate(way) if step.block is made[-1].block)
    around = [step.statement for step in way[start:-1] if isinstance(step.statement, cst.For | cst.While | cst.FunctionDef)]
    if not around or not isinstance(around[-1], cst.For):
        return {}
    try:
        loop, epoch = epoch_loop(tree, tree.position(around[-1]).start.line)
    except FixNotApplicable:
        return {}
    return {loop.body: _on_top(told.format(epoch=epoch))}


def _on_top(text: str) -> Callable[[Any], Any]:
    told = cst.parse_statement(text)
    return lambda body: body.with_changes(body=[told, *body.body])


def _class(imports: Imports, call: cst.Call) -> str:
    known = imports.taken(*_SAMPLER)
    if known is not None:
        return known
    if isinstance(call.func, cst.Attribute):  # next to the loader's class, in the module by which that is called
        module = dotted(call.func.value)
        if imports.is_name_of(f"{module}.DistributedSampler", _SAMPLER[0]):
            return f"{module}.DistributedSampler"
    return imports.take("torch.utils.data", "DistributedSampler")


def _with_sampler(call: cst.Call, name: str, shuffle: cst.Arg | None, alone: bool) -> cst.Call:
    sampler = cst.Name(name)
    spaced = [
        arg.equal for arg in ([shuffle] if shuffle is not None else []) + list(call.args) if isinstance(arg.equal, cst.AssignEqual)
    ]
    equal = next(iter(spaced), None) or cst.AssignEqual(
        whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
    )
    if shuffle is not None and not alone and keyword_of(call, "sampler") is None:
        new = shuffle.with_changes(keyword=cst.Name("sampler"), equal=equal, value=sampler)
        return call.with_changes(args=[new if arg is shuffle else arg for arg in call.args])
    if shuffle is not None:
        value: cst.BaseExpression = cst.Name("False")
        if alone and dotted(shuffle.value) == "True":
            value = cst.parse_expression(f"{name} is None")
        call = call.with_changes(args=[arg.with_changes(value=value) if arg is shuffle else arg for arg in call.args])
    return with_argument(call, "sampler", sampler)


def _new_name(tree: Tree, statement: cst.CSTNode) -> str:
    """A name for the sampler of a loader: that of the loader, where it has one. Raises Refused where all are taken."""
    taken = names_in(tree.module)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    target = (
        small.targets[0].target if isinstance(small, cst.Assign) else small.target if isinstance(small, cst.AnnAssign) else None
    )
    loader = (dotted(target) or "").rsplit(".", 1)[-1] if target is not None else ""
    own = re.sub(r"(data_?)?loader|(?<=_)dl$", "sampler", loader)
    names = [own] if own != loader and own.startswith(("train", "trn")) else []
    for name in (*names, "sampler", "train_sampler", own if own != loader else "", "distributed_sampler"):
        if name and name not in taken:
            return name
    raise FixNotApplicable("no name for the sampler is free")


def _may_not_run(tree: Tree, node: cst.CSTNode, top: cst.CSTNode) -> bool:
    parents = tree.parents()
    while node is not top:
        if isinstance(node, _BETWEEN):
            return True
        node = parents[node]
    return False


def _name_given(statement: cst.CSTNode, call: cst.Call) -> str | None:
    """The plain name that a statement gives to what a call returns; None where it does anything else."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.Assign) and small.value is call and len(small.targets) == 1:
            target = small.targets[0].target
            if isinstance(target, cst.Name):
                return target.value
        if isinstance(small, cst.AnnAssign) and small.value is call and isinstance(small.target, cst.Name):
            return small.target.value
    return None
