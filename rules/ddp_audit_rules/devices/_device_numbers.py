"""Which device an index means on the ranks of one and of two nodes, and whether seeds repeat on a second node."""

from __future__ import annotations

from dataclasses import replace

from ddp_audit.tree.questions import is_kind
from ddp_audit.tree.values import MISSING, Const, Expr, Value, World, evaluate, options
from ddp_audit_rules.facts.one_node import ONE_NODE, TWO_NODES


def device_number(value: Value, world: World) -> int | None:
    """The device number that a value means on one rank; None where it is not computable or names no number."""
    result = evaluate(value, world)
    if isinstance(result, tuple) and len(result) == 1:
        result = result[0]
    if isinstance(result, int) and not isinstance(result, bool):
        return result
    kind, _, number = result.rpartition(":") if isinstance(result, str) else ("", "", "")
    return int(number) if number.isdecimal() and (not kind or is_kind(kind, "accelerator")) else None


def is_device(value: Value) -> bool:
    """Whether a value is a torch.device that was made somewhere else."""
    return isinstance(value, Expr) and value.op == "device"


def on_accelerator(value: Value) -> Value:
    """A choice of device without the arm that takes the CPU."""
    if isinstance(value, Expr) and value.op == "device":
        return replace(value, args=tuple(on_accelerator(arg) for arg in value.args))
    arms = [o for o in options(value) if not (isinstance(o, Const) and isinstance(o.value, str) and o.value.startswith("cpu"))]
    return arms[0] if len(arms) == 1 else value


def ranks_past_the_end(value: Value) -> list[int]:
    """Ranks of two nodes of two whose index no node has; empty where one is unknown or where one node fails as well."""
    value = on_accelerator(value)
    if any(device_number(value, world) not in (0, 1) for world in ONE_NODE):
        return []
    numbers = [device_number(value, world) for world in TWO_NODES]
    return [] if None in numbers else [rank for rank, number in enumerate(numbers) if number is not None and number >= 2]


def repeats_on_nodes(seed: Value) -> bool:
    """Whether ranks of one node have seeds of their own and those of another node have them again."""
    if "rank" not in seed.taint:
        return False
    seeds = [evaluate(seed, world) for world in TWO_NODES]
    return MISSING not in seeds and seeds[0] != seeds[1] and seeds[:2] == seeds[2:]
