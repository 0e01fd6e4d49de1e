"""Floor divisions by the number of processes: which of them matter, whether a remainder is looked at, and an example of one."""

from __future__ import annotations

import re

from ddp_audit.launch.scaling import ACCUMULATION, Job, conditions, depends_on_world, remainders
from ddp_audit.patterns import pattern
from ddp_audit.program.model import Program
from ddp_audit.program.values import MISSING, Expr, Value, World, defaults_in, evaluate

_GLOBAL_BATCH = pattern(
    r"(?:global|total|effective|full)\w*batch\w*|batch\w*(?:global|total)|tokens?_per_(?:step|update)", re.IGNORECASE
)
_BATCH = pattern(r"batch(?:_?size)?$|batch_size", re.IGNORECASE)
_NO_TOTAL = pattern(r"val|eval|test|len\(|num_batches|batches|samples|epoch|avg|average|mean", re.IGNORECASE)


def severity_of(target: str, names: str, after: bool) -> str | None:
    """Warning for accumulation counts and global batches, info for a process's batch, None for other divisions."""
    if _NO_TOTAL.search(names) or _NO_TOTAL.search(target):
        return None
    if after or ACCUMULATION.search(target) or ACCUMULATION.search(names) or _GLOBAL_BATCH.search(names):
        return "warning"
    return "info" if _BATCH.search(names) else None


def is_remainder_checked(program: Program, left: Value, dividend: str) -> bool:
    """Whether some condition of the program relates this dividend to the world size, or looks at its remainder."""
    own = {default.name for default in defaults_in(left)}
    word = re.compile(rf"(?<![\w.]){re.escape(dividend)}(?![\w.])")
    for test, text in conditions(program):
        if any(depends_on_world(by) and _is_same(whole, left) for whole, by in remainders(test)):
            return True
        if depends_on_world(test) or "%" in text:
            named = {default.name for default in defaults_in(test)}
            if own & named or word.search(text):
                return True
    return False


def _is_same(one: Value, other: Value) -> bool:
    """Whether two values are equal in every job, whatever they are called."""
    found = [(evaluate(one, world), evaluate(other, world)) for world in (World(0, 2, 2), World(0, 3, 3))]
    return all(left is not MISSING and left == right for left, right in found)


def counts_one_node(value: Value) -> bool:
    """Whether a divisor is made of the devices or the processes of one node."""
    return isinstance(value, Expr) and (
        value.op in ("device_count", "local_world_size") or any(counts_one_node(arg) for arg in value.args)
    )


def example_of(job: Job, left: Value, right: Value) -> str:
    """What the division makes of a job that leaves a remainder: the named one, else the smallest of at most 64 processes."""
    sizes = [job.world_size] if job.world_size is not None else range(2, 65)
    for size in sizes:
        world = World(0, size, size)
        value, by = evaluate(left, world), evaluate(right, world)
        if type(value) is not int or type(by) is not int or by < 1:
            return ""
        if value % by:
            made = value // by * by
            return f": on {size} processes {value:,} // {by:,} = {value // by:,}, so {made:,} of {value:,} are done"
        if not depends_on_world(right):
            return f"; {value:,} // {by:,} leaves none now"
    return ""
