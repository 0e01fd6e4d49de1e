"""What else in a program follows the number of processes: batches of a process, learning rates, schedules, shares of the data.

Each is one line with its value under a job where that can be computed, and its place. Nothing of the program is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddp_audit.launch.scaling import Job, depends_on_world, division_parts
from ddp_audit.launch.update import Update
from ddp_audit.program.model import first_of_each_place
from ddp_audit.program.nodes import FloorDivision, OptimizerMade, SamplerMade, SchedulerMade
from ddp_audit.program.values import Const, Items, Unknown, Value

_STEPS = ("num_training_steps", "num_warmup_steps", "total_steps", "steps_per_epoch", "T_max", "total_iters")


def quantities(job: Job, update: Update | None = None) -> list[str]:
    """Lines about the numbers of a job that depend on its world size, without the division that `update` is about."""
    if job.world_size is None:
        return []
    lines = [*_divisions(job, update), *_rates(job), *_schedules(job), *_shares(job)]
    return list(dict.fromkeys(lines))


def _divisions(job: Job, update: Update | None) -> Iterator[str]:
    own = update.division.span if update is not None and update.division is not None else None
    for node in first_of_each_place(job.program.of(FloorDivision)):
        left, right = node.left, node.right
        if left is None or right is None or node.span == own or not depends_on_world(right) or depends_on_world(left):
            continue
        target, dividend, divisor = division_parts(job.program, node)
        text = job.program.line(node.span.path, node.span.line)
        if not re.match(
            rf"{re.escape(target)}\s*(?::[^=]+)?(?://)?=\s*(?:int\()?{re.escape(dividend)}|{re.escape(dividend)}\s*//=", text
        ):
            target = f"{dividend} // {divisor}"  # a part of something larger
        value, by = job.value(left), job.value(right)
        if type(value) is int and type(by) is int and by > 0 and job.reaches(node) is not False:
            rest = f", and {value % by:,} of {value:,} are left over" if value % by else ""
            yield f"{target or dividend} = {value:,} // {by:,} = {value // by:,}{rest} ({node.place})"
        elif job.reaches(node) is not False:
            yield f"{target or dividend} is not known here: {dividend} // {divisor} ({node.place})"


def _rates(job: Job) -> Iterator[str]:
    for node in first_of_each_place(job.program.of(OptimizerMade)):
        rate = node.lr
        if rate is not None and depends_on_world(rate):
            yield f"learning rate = {_shown(job, rate)} ({node.place})"


def _schedules(job: Job) -> Iterator[str]:
    for node in first_of_each_place(job.program.of(SchedulerMade)):
        for name in _STEPS:
            steps = node.args.get(name)
            if steps is not None and depends_on_world(steps):
                yield f"{name} of the schedule = {_shown(job, steps)} ({node.place})"


def _shares(job: Job) -> Iterator[str]:
    world = job.world_size
    for node in first_of_each_place(job.program.of(SamplerMade)):
        if node.cls != "DistributedSampler" or world is None or world < 2:
            continue
        replicas = node.args.get("num_replicas")
        count = job.value(replicas) if replicas is not None and not _is_none(replicas) else world
        if type(count) is not int or count < 1:
            continue
        drop = node.args.get("drop_last")
        drops = isinstance(drop, Const) and bool(drop.value)
        rest = f"up to {count - 1} left out" if drops else f"up to {count - 1} of them twice"
        rounded = "floor" if drops else "ceil"
        note = "" if count == world else f", for {count} replicas and not {world}"
        yield f"each process has {rounded}(n / {count}) of n samples, {rest}{note} ({node.place})"


def _shown(job: Job, value: Value) -> str:
    number = job.value(value)
    source = value.text or "its expression"
    if isinstance(number, int | float) and not isinstance(number, bool):
        return f"{number:,.6g}, from {source}"
    return f"{source}, which is not known here"


def _is_none(value: Value) -> bool:
    return isinstance(value, Items | Unknown) or (isinstance(value, Const) and value.value is None)
