"""Fixes for what samplers divide: the shares of the ranks (DDP303), one data set for all of them (DDP306)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.arguments import keyword_of, with_argument
from ddp_audit.fix.imports import Imports
from ddp_audit.fix.scopes import given
from ddp_audit.fix.tree import FixNotApplicable, Tree, dotted, walk
from ddp_audit.knowledge.kinds import is_kind

LISTING = "listing"  # detail of a fix of DDP306
_GIVEN = {  # position, and who knows
    "num_replicas": (1, "torch.distributed.get_world_size"),
    "rank": (2, "torch.distributed.get_rank"),
    "seed": (4, ""),
}


def own_share(tree: Tree, finding: Finding) -> cst.Module:
    """The rank and the number of ranks that a DistributedSampler is given, as those of the group; a seed without the rank."""
    call = tree.at(cst.Call, finding)
    if any(arg.star for arg in call.args):
        raise FixNotApplicable("the arguments of the sampler are not all written out")
    imports = Imports(tree, finding.span.line)
    edits: dict[cst.CSTNode, Callable[[Any], Any]] = {}
    for name in (finding.fix.detail if finding.fix is not None else "").split():
        plain = [arg for arg in call.args if arg.keyword is None]
        position, asks = _GIVEN[name]
        argument = keyword_of(call, name) or (plain[position] if position < len(plain) else None)
        if argument is None:
            raise FixNotApplicable(f"{name} is not written out")
        text = _alike(argument.value) if name == "seed" else _held(tree, finding, imports, asks)
        edits[argument.value] = partial(_as_text, text)
    return imports.put_into(tree.edited(edits))


def _held(tree: Tree, finding: Finding, imports: Imports, asks: str) -> str:
    """A name that holds what a function says, or its call."""
    for name, value in given(tree, tree.path_to(finding.span.line)):
        if isinstance(value, cst.Call) and imports.is_name_of(dotted(value.func), asks):
            return name
    return f"{imports.wanted(asks, 'torch.distributed')}()"


def _alike(seed: cst.BaseExpression) -> str:
    """A sum of something and the rank without the rank. Raises Refused for any other seed."""
    if isinstance(seed, cst.BinaryOperation) and isinstance(seed.operator, cst.Add):
        for rank, other in ((seed.left, seed.right), (seed.right, seed.left)):
            name = dotted(rank.func if isinstance(rank, cst.Call) and not rank.args else rank) or ""
            if name.rsplit(".", 1)[-1] in ("rank", "local_rank", "global_rank", "get_rank"):
                return cst.Module([]).code_for_node(other)
    raise FixNotApplicable("the seed is not a sum with the rank")


def _as_text(text: str, old: cst.CSTNode) -> cst.BaseExpression:
    return cst.parse_expression(text)


def same_split(tree: Tree, finding: Finding) -> cst.Module:
    """A generator with a seed for random_split; `sorted(..)` around the listing of a folder."""
    if finding.fix is not None and finding.fix.detail == LISTING:
        return _sorted_listing(tree, finding)
    call = tree.at(cst.Call, finding)
    imports = Imports(tree, finding.span.line)
    plain = [arg for arg in call.args if arg.keyword is None]
    if not imports.is_name_of(dotted(call.func), "torch.utils.data.random_split"):
        raise FixNotApplicable("the split is not called by a name of torch's")
    if any(arg.star for arg in call.args) or len(plain) > 2:
        raise FixNotApplicable("the arguments of the split are not all written out by name")
    seeded = cst.parse_expression(f"{imports.wanted('torch.Generator', 'torch')}().manual_seed(0)")
    return imports.put_into(tree.replaced(call, with_argument(call, "generator", seeded)))


def _sorted_listing(tree: Tree, finding: Finding) -> cst.Module:
    parents = tree.parents()
    found = [
        node
        for node in walk(tree.module)
        if isinstance(node, cst.Call)
        and tree.position(node).start.line == finding.span.line
        and is_kind(node.func.attr.value if isinstance(node.func, cst.Attribute) else dotted(node.func) or "", "lists-paths")
    ]
    if len(found) != 1:
        raise FixNotApplicable("the listing is written in a way that is not known here")
    above = parents[found[0]]
    if (
        isinstance(above, cst.Arg)
        and isinstance(call := parents[above], cst.Call)
        and dotted(call.func) in ("sorted", "len", "set")
    ):
        raise FixNotApplicable("the order of the listing is not used")
    return tree.replaced(found[0], cst.Call(cst.Name("sorted"), [cst.Arg(found[0])]))
