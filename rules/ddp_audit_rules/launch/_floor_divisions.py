"""Floor divisions by the number of processes: which of them matter, whether a remainder is looked at, and an example of one."""

from __future__ import annotations

from dataclasses import dataclass

from ddp_audit.launch.scaling import Job, conditions, depends_on_world, remainders
from ddp_audit.launch.update import is_global_batch
from ddp_audit.tree.nodes import Backward, Loop, Node, Program
from ddp_audit.tree.questions import loss_of, says
from ddp_audit.tree.values import MISSING, RANK, Expr, Value, World, behind, defaults_in, evaluate, operation_of


def severity_of(target: str, names: str, after: bool) -> str | None:
    """Warning for accumulation counts and global batches, info for a process's batch, None for other divisions."""
    if says(names, "no-total") or says(target, "no-total"):
        return None
    if after or says(target, "accumulation") or says(names, "accumulation") or is_global_batch(names):
        return "warning"
    return "info" if says(names, "batch-size") else None


def is_remainder_checked(program: Program, left: Value, dividend: str) -> bool:
    """Whether some condition of the program relates this dividend to the world size, or looks at its remainder."""
    own = {default.name for default in defaults_in(left)}
    for test in conditions(program):
        if any(depends_on_world(by) and _is_same(whole, left) for whole, by in remainders(test)):
            return True
        parts = list(behind(test))
        of_it = own & {default.name for default in defaults_in(test)} or any(part.text == dividend for part in parts)
        if of_it and (depends_on_world(test) or any(operation_of(part) == "%" for part in parts)):
            return True
    return False


def _is_same(one: Value, other: Value) -> bool:
    """Whether two values are equal in every job, whatever they are called."""
    found = [(evaluate(one, world), evaluate(other, world)) for world in (World(0, 2, 2), World(0, 3, 3))]
    return all(left is not MISSING and left == right for left, right in found)


@dataclass(frozen=True, slots=True)
class Shares:
    """A total that is dealt out to the ranks with its remainder: a job of a size, and the share of each rank."""

    loop: Loop
    size: int
    shares: tuple[int, ...]
    weighs: bool  # whether a micro-batch counts more on a rank that has fewer


def dealt_out(program: Program, left: Value, size: int | None) -> Shares | None:
    """How the remainder of a division is dealt out, by the loops that lead to a backward; None where it is not."""
    total = evaluate(left, World(0, 1, 1))
    sizes = [size] if size is not None else [n for n in range(2, 17) if type(total) is int and total % n]
    for backward in program.of(Backward) if type(total) is int and total > 0 else ():
        for loop in (one for one in backward.loops if one.count is not None and RANK in one.count.taint):
            for number in sizes[:3]:
                shares = _evaluated(loop.count, number)
                if shares is not None and sum(shares) == total and len(set(shares)) > 1:
                    return Shares(loop, number, shares, _by_own_share(program, backward, total, number))
    return None


def _evaluated(value: Value | None, size: int) -> tuple[int, ...] | None:
    found = [MISSING if value is None else evaluate(value, World(rank, size, size)) for rank in range(size)]
    shares = tuple(int(share) for share in found if isinstance(share, int))
    return shares if len(shares) == size else None


def _by_own_share(program: Program, backward: Node, total: int, size: int) -> bool:
    """Whether the loss is not divided by the one number with which all micro-batches weigh alike: the total over the size."""
    for divisor in loss_of(backward.target, program).divisors:
        by = [evaluate(divisor, World(rank, size, size)) for rank in range(size)]
        if all(isinstance(number, (int, float)) and abs(number * size - total) < 1e-6 * total for number in by):
            return False
    return True


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
            return f": {size} processes do {made:,} of {value:,}"
        if not depends_on_world(right):
            return f"; {value:,} // {by:,} has no remainder now"
    return ""
