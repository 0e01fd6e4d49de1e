"""What calls about process groups mean: they are made and ended, and a rank asks who it is and how many there are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import given, parameters
from ddp_audit.program import reach
from ddp_audit.program.contracts import Contracts
from ddp_audit.program.nodes import Destroy, Init
from ddp_audit.program.values import MISSING, Const, Made, Unknown, Value, evaluate, leaf, worlds

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()
_INIT = "torch.distributed.init_process_group"


@CONTRACTS.of(_INIT)
def _init(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arguments = given(_INIT, args, kwargs)
    lw.emit(node, Init(args=arguments))
    for parameter in ("rank", "world_size"):
        _know(lw, _written(node, parameter), arguments.get(parameter), parameter)
    return Const(value=None)


def _know(lw: Lowering, target: ast.expr | None, value: Value | None, what: str) -> None:
    """What is given as the rank is the rank, however it came about, where nothing else says what it is in every job."""
    if value is None or not isinstance(target, (ast.Name, ast.Attribute)):
        return
    if any(evaluate(value, world) in (MISSING, None) for world in worlds()):
        lw.assign(target, leaf(what))


def _written(node: ast.Call, parameter: str) -> ast.expr | None:
    """The expression that a parameter is given by position or by name."""
    place = parameters(_INIT).index(parameter)
    by_position = node.args[place] if place < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args) else None
    return next((keyword.value for keyword in node.keywords if keyword.arg == parameter), by_position)


@CONTRACTS.of("torch.distributed.destroy_process_group")
def _destroy(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    lw.emit(node, Destroy())
    return Const(value=None)


@CONTRACTS.of("torch.distributed.get_rank")
def _rank(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    group = args[0] if args else kwargs.get("group")
    if group is not None and not reach.is_default(group):
        return Unknown(taint=frozenset({"rank"}), text=lw.text(node), by=Made("torch.distributed.get_rank", (group,)))
    return leaf("rank")


@CONTRACTS.of("torch.distributed.get_world_size")
def _world_size(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    group = args[0] if args else kwargs.get("group")
    return leaf("world_size") if group is None or reach.is_default(group) else Unknown(text=lw.text(node))


@CONTRACTS.of("torch.distributed.is_initialized")
def _true(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(value=True, text=lw.text(node))


@CONTRACTS.of("torch.distributed.get_node_local_rank")
def _local_rank(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return leaf("local_rank")


@CONTRACTS.of("torch.cuda.device_count", "torch.accelerator.device_count")
def _device_count(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return leaf("device_count")
