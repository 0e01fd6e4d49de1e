"""The option --local_rank: where the code reads it, which launches pass it, and what its default makes of a job."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from ddp_audit.launch.model import DEEPSPEED, Launch
from ddp_audit.tree.nodes import Node, Program
from ddp_audit.tree.questions import Written, calls_of, code_at, hints_at, written
from ddp_audit.tree.values import MISSING


def reads(program: Program) -> list[tuple[str, int]]:
    """The lines of code that read an attribute or key of the name local_rank."""
    return [(one.path, one.line) for one in _touches(program) if isinstance(one.node.ctx, ast.Load)]


def is_set(program: Program) -> bool:
    """Whether the code gives such an attribute or key a value itself."""
    return any(isinstance(one.node.ctx, ast.Store) for one in _touches(program))


def reads_environment(program: Program) -> bool:
    """Whether the code asks the environment, or what does, for the local rank."""
    if hints_at(program, "local-rank-elsewhere") or calls_of(program, "get_local_rank"):
        return True
    texts = (one.node.value for one in written(program, ast.Constant, "LOCAL_RANK"))
    return any(isinstance(text, str) and text.endswith("LOCAL_RANK") and not text.startswith("-") for text in texts)


def _touches(program: Program) -> Iterator[Written[Any]]:
    for one in written(program, ast.AST, "local_rank"):
        match one.node:
            case ast.Attribute(attr="local_rank") | ast.Subscript(slice=ast.Constant(value="local_rank")):
                yield one


def handed_over(launches: Sequence[Launch], flags: Sequence[str]) -> bool:
    """Whether every launch of several processes that is known passes the argument in a spelling that the parser knows."""
    if not launches:
        return False
    return all(one.passes_local_rank and ("--local_rank" if one.kind == DEEPSPEED else "--local-rank") in flags for one in launches)


def gives(launch: Launch) -> bool:
    """Whether the command passes the argument to the script itself."""
    return any(word.startswith(("--local-rank", "--local_rank")) for word in launch.script_args)


def consequence(program: Program, default: object, node: Node) -> str:
    """What the default makes of a run of several processes."""
    call = code_at(program, node.span, ast.Call)
    given = () if call is None else call.keywords
    if any(k.arg == "required" and isinstance(k.value, ast.Constant) and k.value.value for k in given):
        return "the parser ends every process"
    if default == -1:
        return "it stays -1, and every process trains alone or fails on the device"
    if default is MISSING:
        return "it keeps its default in every process"
    if default is None:
        return "it stays None in every process, which is not a device"
    return f"it stays {default}, so all ranks of a node use device {default}"
