"""Whether a `.to(..)`, `.half()` or their like on a wrapped model gives its parameters new storage."""

from __future__ import annotations

from ddp_audit.tree.nodes import Move, Node, Program, Wrap
from ddp_audit.tree.questions import is_kind, module_of, unwrapped
from ddp_audit.tree.values import Const, Expr, Ext, Obj, Value, constant
from ddp_audit_rules.facts.training import wrapped_keys


def moves(program: Program, node: Move, wrapper: Obj, wrap: Wrap) -> str:
    """How sure it is that a `.to()` or its like gives parameters new storage; empty where it does not."""
    name, where = node.name, node.where
    earlier = [n for n in program.of(Move) if n.number < wrap.number and _is_of(program, n, wrapper)]
    if is_kind(name, "casts") or is_kind(where, "other-precision"):
        return "" if any(n.name == name and _same(n, node) for n in earlier) else "likely"
    if name == "float" or (isinstance(where, Ext) and where.name.startswith("torch.")):
        return "likely" if any(is_kind(n.name, "casts") for n in earlier) else ""
    on_device = bool(earlier) or "device_ids" in wrap.args or "**" in wrap.args
    away = name == "cpu" or constant(where) == "cpu"
    if away:
        return "likely" if on_device else ""
    if on_device:
        others = [n for n in program.of(Move) if n.number > wrap.number and n is not node and _is_of(program, n, wrapper)]
        return "possible" if any(n.name == "cpu" or constant(n.where) == "cpu" for n in others) else ""
    return "likely" if name == "cuda" or _names_cuda(where) else "possible"


def _is_of(program: Program, node: Node, wrapper: Obj) -> bool:
    module = module_of(node.target)
    inner = None if module is None else unwrapped(module)
    return inner is not None and bool(program.modules.inside(inner.key) & wrapped_keys(program, wrapper))


def _same(one: Move, other: Move) -> bool:
    return one.where.text == other.where.text


def _names_cuda(where: Value) -> bool:
    if isinstance(where, Const):
        return str(where.value).startswith("cuda")
    return isinstance(where, Expr) and any(_names_cuda(part) for part in where.args)
