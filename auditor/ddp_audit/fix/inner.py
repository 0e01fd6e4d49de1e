"""Fixes that go by the module inside of a wrapper: a call (DDP401), an attribute (DDP115)."""

from __future__ import annotations

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix.scopes import given, scope_of
from ddp_audit.fix.tree import FixNotApplicable, Tree, bindings, dotted, quoted

GETATTR = "getattr"  # detail of a fix: the name may also hold the module without a wrapper


def call_inner_module(tree: Tree, finding: Finding) -> cst.Module:
    """`model(x)` as `model.module(x)`; where the fix says that the wrap is conditional, by the name of the inner module if the file
    has one (`raw_model = model.module if ddp else model`), else as `getattr(model, "module", model)(x)`."""
    call = tree.at(cst.Call, finding)
    func = call.func
    inner = func.value if isinstance(func, cst.Attribute) and func.attr.value == "forward" else func
    if dotted(inner) is None:
        raise FixNotApplicable("the wrapper is not called by a name")
    return tree.replaced(inner, _through(tree, finding, inner))


def attribute_of_inner(tree: Tree, finding: Finding) -> cst.Module:
    """`model.scale` as `model.module.scale`."""
    node = tree.at(cst.Attribute, finding)
    if dotted(node.value) is None:
        raise FixNotApplicable("the wrapper has no plain name here")
    return tree.replaced(node.value, _through(tree, finding, node.value))


def _through(tree: Tree, finding: Finding, wrapper: cst.BaseExpression) -> cst.BaseExpression:
    if finding.fix is None or finding.fix.detail != GETATTR:
        return cst.Attribute(wrapper, cst.Name("module"))
    raw = _raw_name(tree, finding, dotted(wrapper) or "")
    if raw is not None:
        return cst.parse_expression(raw)
    module = quoted(tree, "module")
    return cst.Call(cst.Name("getattr"), [cst.Arg(wrapper), cst.Arg(module), cst.Arg(wrapper.deep_clone())])


def _raw_name(tree: Tree, finding: Finding, wrapper: str) -> str | None:
    """The name that the file gives to the module without wrapper, where that is given by the time when the place is reached."""
    calls = [related.line for related in finding.related if related.role == "call" and related.path == finding.span.path]
    here = tree.path_to(finding.span.line)
    root = wrapper.split(".")[0]
    if calls and (root in bindings([scope_of(tree, here)]) or scope_of(tree, tree.path_to(calls[0])) is not tree.module):
        return None  # a name of the function's own, or names that only the caller has
    for name, value in given(tree, tree.path_to(calls[0]) if calls else here):
        body, other = (value.body, value.orelse) if isinstance(value, cst.IfExp) else (value, None)
        if dotted(body) == f"{wrapper}.module" and (other is None or dotted(other) == wrapper):
            return name
    return None
