"""What a program says about CUDA devices: shared by the rules on devices."""

from __future__ import annotations

from ddp_audit.tree.nodes import Init, Move, Program
from ddp_audit.tree.questions import speaks_of
from ddp_audit.tree.values import Const, Expr, Value, World, evaluate, options

_SET_OUTSIDE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "set_default_device")


def may_use_nccl(program: Program) -> bool:
    """Whether the process group may carry CUDA tensors: its backend may be nccl, or is left to torch."""
    return any(_may_be_nccl(node.args.get("backend")) for node in program.of(Init))


def is_on_cuda(program: Program) -> bool:
    """Whether a model is brought to a CUDA device on rank 0, whatever the backend is, that the program leaves open."""
    open_backend = any(not any(isinstance(option, Const) for option in options(n.args["backend"])) for n in _naming(program))
    return open_backend and any(_is_cuda(move) for move in program.of(Move))


def _naming(program: Program) -> list[Init]:
    return [node for node in program.of(Init) if "backend" in node.args]


def _is_cuda(move: Move) -> bool:
    if move.name != "to":
        return move.name == "cuda"
    place = move.where.args[0] if isinstance(move.where, Expr) and move.where.op == "device" and move.where.args else move.where
    found = evaluate(place, World(0, 2, 2))
    return isinstance(found, str) and found.partition(":")[0] == "cuda"


def surely_gloo(program: Program) -> bool:
    """Whether every process group has a backend that is known and is not nccl."""
    inits = list(program.of(Init))
    known = all(isinstance(option, Const) for n in inits if "backend" in n.args for option in options(n.args["backend"]))
    return bool(inits) and known and not may_use_nccl(program)


def _may_be_nccl(backend: Value | None) -> bool:
    if backend is None:
        return True
    found = [option.value for option in options(backend) if isinstance(option, Const)]
    return any(value is None or "nccl" in str(value) for value in found)


def places_for_user(program: Program) -> bool:
    """Whether a framework, or the environment, gives each process its device."""
    return program.frameworks.places_devices or speaks_of(program, *_SET_OUTSIDE)
