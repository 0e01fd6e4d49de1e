"""Lines for the report of a check: what the named launch makes of the program's numbers, and where each number came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_audit.launch.arithmetic import nearest_accumulations
from ddp_audit.launch.model import WORLD_SIZE
from ddp_audit.launch.overrides import missing_config_files
from ddp_audit.launch.quantities import quantities
from ddp_audit.launch.scaling import (
    Job,
    Number,
    assigned_number,
    config_folders,
    depends_on_world,
    division_parts,
    starts,
)
from ddp_audit.launch.update import BATCH_NAMES, BLOCK_NAMES, update_of
from ddp_audit.program.meaning import says
from ddp_audit.program.nodes import FloorDivision

if TYPE_CHECKING:
    from ddp_audit.program.model import Node, Program
    from ddp_audit.rule import Context


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A as the script is given it, and a as a process uses it; `division` where the script divides one by W.

    `divisor` is W, or W times the size of a micro-batch where the script divides the total of an update by both.
    """

    total: Number
    per_rank: int
    rest: int
    division: Node | None
    divisor: int


def launch_notes(context: Context) -> list[str]:
    """Lines for the named launch: W, then a and K as far as the program tells them. Empty where no launch was named."""
    launch, program = context.launch, context.program
    if launch is None or not starts(launch, program.entry):
        return []
    told = "--world-size" if launch.kind == WORLD_SIZE else launch.text
    lines = [f"{program.entry}: W = {launch.describe_world()}, from {told}"]
    lines += [
        f"{program.entry}: config file {name} of the launch is not there"
        for name in missing_config_files(launch, config_folders(program))
    ]
    world = launch.world_size
    if world is None:
        return lines
    job = Job(program, launch)
    accumulation = accumulation_of(job)
    batch, block = batch_of(job), block_of(job)
    update = update_of(job)
    if accumulation is not None:
        lines.append(f"{program.entry}: {_about_accumulation(accumulation, world)}")
    if accumulation is not None and accumulation.rest == 0 and batch is not None and accumulation.divisor == world:
        lines.append(f"{program.entry}: {_about_update(accumulation, world, batch, block)}")
    elif update is not None and update.tokens is not None and update.holds and (accumulation is None or update.divisor != world):
        numbers = ", ".join(str(number) for number in update.numbers())
        lines.append(f"{program.entry}: K = {update.tokens:,} {update.unit} an update = {update.product()}, with {numbers}")
    return lines + [f"{program.entry}: {line}" for line in quantities(job, update)]


def _about_accumulation(accumulation: Accumulation, world: int) -> str:
    total, a, divisor = accumulation.total, accumulation.per_rank, accumulation.divisor
    unit = "micro-batch" if a == 1 else "micro-batches"
    if accumulation.division is None:
        return f"a = {a} {unit} an update in each process: {total}, which the script does not divide by the world size"
    if accumulation.rest:
        near = " and ".join(f"{count:,}" for count in nearest_accumulations(int(total.value), divisor))
        return f"a = {total.value:,} / {divisor:,} is not whole: {total}; {near} would be"
    sign = "/" if divisor == world else "//"
    return f"a = {a} {unit} an update in each process: {total} {sign} {divisor:,} ({accumulation.division.place})"


def _about_update(accumulation: Accumulation, world: int, batch: Number, block: Number | None) -> str:
    a = accumulation.per_rank
    if block is None:
        product = f"W x a x B = {world} x {a} x {batch.value}"
        return f"{world * a * batch.value:,} samples an update = {product}, with {batch}"
    product = f"W x a x B x T = {world} x {a} x {batch.value} x {block.value:,}"
    return f"K = {world * a * batch.value * block.value:,} tokens an update = {product}, with {batch} and {block}"


def accumulation_of(job: Job) -> Accumulation | None:
    """A and a of a program under a launch, from the first division of an accumulation count by W, else from its name alone."""
    for node in job.program.of(FloorDivision):
        left, right = node.left, node.right
        if left is None or right is None or not depends_on_world(right) or depends_on_world(left):
            continue
        numbers = job.numbers(left)
        target, dividend, _ = division_parts(job.program, node)
        names = [*(number.name for number in numbers), dividend, target]
        value, divisor = job.value(left), job.value(right)
        if not any(says(name, "accumulation") for name in names) or job.leads_to(node) is False:
            continue
        if isinstance(value, int) and isinstance(divisor, int) and divisor > 0:
            total = numbers[0] if len(numbers) == 1 and numbers[0].value == value else None
            total = total or assigned_number(job.program, node, dividend, value) or Number(dividend, value, node.place)
            return Accumulation(total, value // divisor, value % divisor, node, divisor)
    return _undivided(job)


def _undivided(job: Job) -> Accumulation | None:
    divided = any(says(" ".join(division_parts(job.program, node)), "accumulation") for node in job.program.of(FloorDivision))
    names = [name for name in job.program.config if says(name, "accumulation")]
    if divided or len(names) != 1:
        return None
    number = job.number(names[0])
    if number is None or type(number.value) is not int or number.value < 1:
        return None
    return Accumulation(number, number.value, 0, None, job.world_size or 1)


def batch_of(job: Job) -> Number | None:
    """B by its name, where it is a whole number."""
    return _first(job, BATCH_NAMES)


def block_of(job: Job) -> Number | None:
    """T by its name, where it is a whole number."""
    return _first(job, BLOCK_NAMES)


def _first(job: Job, names: tuple[str, ...]) -> Number | None:
    program: Program = job.program
    by_last = {name.rpartition(".")[2]: name for name in program.config}
    for name in names:
        number = job.number(by_last[name]) if name in by_last else None
        if number is not None and type(number.value) is int and number.value > 0:
            return number
    return None
