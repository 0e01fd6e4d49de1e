"""What learning-rate schedulers of torch, Transformers and Diffusers are made for, and rounding to whole numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge import functions
from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.contracts import Contracts
from ddp_audit.program.nodes import SchedulerMade
from ddp_audit.program.operations import operation
from ddp_audit.program.values import (
    Obj,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_FUNCTION_PARAMETERS = ("optimizer", "num_warmup_steps", "num_training_steps")


def scheduler(lw: Lowering, node: ast.Call, name: str, args: list[Value], kwargs: dict[str, Value]) -> Obj | None:
    """The scheduler that a library call makes; None where the name is not that of one."""
    last = name.rsplit(".", 1)[-1]
    if name.startswith("torch.lr_scheduler."):
        parameters = functions.parameters(name) or ("optimizer",)
    elif is_kind(name, "makes-named-schedule", "makes-schedule"):
        parameters = ("name", *_FUNCTION_PARAMETERS) if is_kind(name, "makes-named-schedule") else _FUNCTION_PARAMETERS
    else:
        return None
    span = lw.span(node)
    made = Obj(key=(name, span, lw.way()), kind="scheduler", cls=name, made=span, text=lw.text(node))
    lw.emit(node, SchedulerMade(target=made, args=dict(zip(parameters, args, strict=False)) | kwargs, name=last))
    return made


@CONTRACTS.of("math.ceil", "math.floor")
def _whole(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = lw.calling.rpartition(".")[2]
    return operation(name, args[0], text=lw.text(node)) if args else Unknown(text=lw.text(node))
