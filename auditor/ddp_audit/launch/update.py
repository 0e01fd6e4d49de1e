"""What one update of a program is made of under a launch: W, a, A, B, T and K, each with where it came from.

"A is global" and "A is per process" are distinguished by what the code does with the number: dividing it by the world size makes it
global, using it as it is makes it that of one process. A total that is divided by B, T and W gives a; a global batch that is
divided by W gives B.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddp_audit.launch.overrides import UNKNOWN, fold
from ddp_audit.launch.scaling import (
    Divisibility,
    Job,
    Number,
    assigned_number,
    depends_on_world,
    divisibility_checks,
    division_parts,
)
from ddp_audit.program.code import dotted, names_in, written
from ddp_audit.program.meaning import says
from ddp_audit.program.model import Node, Program, first_of_each_place
from ddp_audit.program.nodes import FloorDivision
from ddp_audit.program.values import Value
from ddp_audit.source.paths import place_of

BATCH_NAMES = (
    "micro_batch_size", "device_batch_size", "per_device_train_batch_size", "per_device_batch_size", "batch_size_per_gpu",
    "train_batch_size", "local_batch_size", "batch_size", "B",
)  # fmt: skip
BLOCK_NAMES = (
    "block_size", "seq_len", "sequence_length", "seq_length", "max_seq_len", "max_seq_length", "context_length", "T",
)  # fmt: skip

GLOBAL_COUNT, PER_PROCESS, TOTAL, GLOBAL_BATCH_KIND, FIXED, PLAIN = "A", "a", "total", "global batch", "fixed", "plain"


@dataclass(frozen=True, slots=True)
class Update:
    """One update of a job. A number is None where it is not known; `holds` is False where the job cannot be so.

    `kind` is how the code comes to a: A divided by W, a as it is, a total divided by B, T and W, a global batch divided by W, a
    number that is fixed in the source whatever W is, or one micro-batch an update.
    """

    world: int
    kind: str
    source: Number | None  # the number that the others follow from
    batch: Number | None
    block: Number | None
    per_rank: int | None
    rest: int = 0
    divisor: int = 1
    division: Node | None = None
    check: Divisibility | None = None
    rounded: bool = False  # divided without a check of the remainder
    fixed: Number | None = None  # the number in the source that stands for the number of processes
    meant: Number | None = None  # the total that the source divides by it

    @property
    def holds(self) -> bool:
        """Whether every number is whole, and at least 1."""
        return self.rest == 0 and (self.per_rank is None or self.per_rank > 0)

    @property
    def made(self) -> int | None:
        """A as the processes together do it."""
        return None if self.per_rank is None else self.per_rank * self.world

    @property
    def samples(self) -> int | None:
        """Sequences an update, as they are done."""
        if self.per_rank is None or self.batch is None:
            return None
        return self.world * self.per_rank * int(self.batch.value)

    @property
    def tokens(self) -> int | None:
        """K, in tokens where T is known and in samples elsewhere."""
        return None if self.samples is None else self.samples * (1 if self.block is None else int(self.block.value))

    @property
    def unit(self) -> str:
        """What K counts."""
        return "samples" if self.block is None else "tokens"

    def numbers(self) -> list[Number]:
        """The configuration values behind the update, each once."""
        found = [number for number in (self.meant, self.fixed, self.source, self.batch, self.block) if number is not None]
        return list(dict.fromkeys(found))

    def product(self) -> str:
        """`W x a x B x T = 8 x 5 x 12 x 1,024`."""
        parts = [("W", self.world), ("a", self.per_rank), ("B", None if self.batch is None else int(self.batch.value))]
        parts += [("T", int(self.block.value))] if self.block is not None else []
        return " x ".join(name for name, _ in parts) + " = " + " x ".join(f"{value:,}" for _, value in parts if value is not None)


def is_global_batch(name: str) -> bool:
    """Whether a name reads as that of the batch of all processes together."""
    return says(name, "tokens-of-update") or (says(name, "batch") and says(name, "global"))


def update_of(job: Job) -> Update | None:
    """The update of a job whose world size is known; None where the program says nothing about it."""
    if job.world_size is None:
        return None
    constants = Constants(job)
    return _divided(job, constants) or _undivided(job, constants)


class Constants:
    """Numbers of a program by name: of its configuration under the job, else the first constant that the entry assigns."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.by_last = {name.rpartition(".")[2]: name for name in reversed(job.program.config)}
        self._assigned: dict[str, Number] | None = None

    def get(self, name: str) -> Number | None:
        """A positive whole number by name."""
        if name in self.by_last or name in self.job.overrides:
            number = self.job.number(self.by_last.get(name, name))
        else:
            number = self.assigned.get(name)
        return number if number is not None and type(number.value) is int and number.value > 0 else None

    def first(self, *names: str) -> Number | None:
        """The first of some names that is one."""
        return next((number for name in names if (number := self.get(name)) is not None), None)

    @property
    def assigned(self) -> dict[str, Number]:
        """Constants that the entry's own statements assign, by name."""
        if self._assigned is None:
            self._assigned = dict(_assigned(self.job.program))
        return self._assigned

    def names(self) -> list[str]:
        """Every name there is, configuration first."""
        return list(dict.fromkeys([*self.by_last, *self.assigned]))


def _assigned(program: Program) -> Iterator[tuple[str, Number]]:
    source = program.files.get(program.entry)
    known: dict[str, Any] = {}
    for node in source.tree.body if source is not None else ():
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = fold(node.value, known)
        for target in targets:
            if isinstance(target, ast.Name) and value is not UNKNOWN and target.id not in known:
                known[target.id] = value
                yield target.id, Number(target.id, value, place_of(program.entry, node.lineno), program.entry, node.lineno)


def _divided(job: Job, constants: Constants) -> Update | None:
    """The update that follows from a division by the world size, or by a number that stands for it."""
    world = job.world_size
    assert world is not None
    batch_division: Update | None = None
    for node in first_of_each_place(job.program.of(FloorDivision)):
        left, right = node.left, node.right
        if left is None or right is None or depends_on_world(left) or job.leads_to(node) is False:
            continue
        target, dividend, divisor_text = division_parts(job.program, node)
        value, divisor = job.value(left), job.value(right)
        if (
            type(value) is not int
            or type(divisor) is not int
            or divisor < 1
            or says(target, "no-training")
            or says(dividend, "no-training")
        ):
            continue
        numbers = job.numbers(left)
        names = [*(number.name for number in numbers), dividend, target]
        by_world = depends_on_world(right)
        counts = any(says(name, "accumulation") for name in names)
        total = _named(job, node, dividend, value, numbers)
        check = _check(job, left, value)
        if counts and by_world and divisor == world:
            return Update(
                world, GLOBAL_COUNT, total, constants.first(*BATCH_NAMES), constants.first(*BLOCK_NAMES), value // world,
                value % world, divisor, node, check, check is None,
            )  # fmt: skip
        if counts and by_world:
            batch, block = _factors(job, node, right, divisor_text, constants)
            batch = batch or constants.first(*BATCH_NAMES)
            if block is None and batch is not None:
                length = constants.first(*BLOCK_NAMES)
                rest = divisor // (world * int(batch.value))
                block = length if length is not None and length.value == rest else None
            return Update(world, TOTAL, total, batch, block, value // divisor, value % divisor, divisor, node, check, check is None)
        if by_world and divisor == world and (any(is_global_batch(n) or says(n, "batch-size") for n in names)):
            batch_division = batch_division or Update(
                world, GLOBAL_BATCH_KIND, total, Number(target or "batch of a process", value // divisor, node.place),
                constants.first(*BLOCK_NAMES), _plain_accumulation(constants), value % divisor, divisor, node, check, check is None,
            )  # fmt: skip
        elif counts and not by_world and says(target, "accumulation") and batch_division is None:
            # The divisor is the micro-batch; the dividend was made from a number of devices that is written in the source.
            batch = _named(job, node, divisor_text, divisor, job.numbers(right))
            total = constants.get(dividend) or total
            meant, fixed = _devices(job, dividend, constants)
            return Update(
                world, FIXED, total, constants.get(divisor_text) or batch, constants.first(*BLOCK_NAMES), value // divisor,
                value % divisor, divisor, node, fixed=fixed, meant=meant,
            )  # fmt: skip
    return batch_division


def _devices(job: Job, quotient: str, constants: Constants) -> tuple[Number | None, Number | None]:
    """The total and the number of devices in the source that a batch of a process was computed from."""
    for node in first_of_each_place(job.program.of(FloorDivision)):
        target, dividend, divisor = division_parts(job.program, node)
        if target == quotient and says(divisor, "number-of-processes"):
            return constants.get(dividend), constants.get(divisor)
    return None, None


def _undivided(job: Job, constants: Constants) -> Update | None:
    """An accumulation count that is used as it is, or none at all."""
    world = job.world_size
    assert world is not None
    batch, block = constants.first(*BATCH_NAMES), constants.first(*BLOCK_NAMES)
    if any(says(" ".join(division_parts(job.program, node)), "accumulation") for node in job.program.of(FloorDivision)):
        return None
    names = [name for name in constants.names() if says(name, "accumulation")]
    number = constants.first(*names)
    if _is_divided(job.program, number or batch):
        return None  # by a number of processes that could not be followed
    if number is not None and isinstance(number.value, int):
        return Update(world, PER_PROCESS, number, batch, block, number.value)
    if names or batch is None:
        return None
    return Update(world, PLAIN, batch, batch, block, 1)


def _is_divided(program: Program, number: Number | None) -> bool:
    """Whether a line of code divides a number by something that is named as a number of processes."""
    if number is None:
        return False
    name = number.name.rpartition(".")[2]
    divisions: list[tuple[ast.expr, ast.BinOp | ast.AugAssign]]
    divisions = [(one.node.left, one.node) for one in written(program, ast.BinOp, name)]
    divisions += [(one.node.target, one.node) for one in written(program, ast.AugAssign, name)]
    named = [node for whole, node in divisions if dotted(whole).rpartition(".")[2] == name]
    return any(isinstance(node.op, (ast.Div, ast.FloorDiv)) and _by_world(node) for node in named)


def _by_world(division: ast.BinOp | ast.AugAssign) -> bool:
    divisor = division.right if isinstance(division, ast.BinOp) else division.value
    return any(says(name, "number-of-processes") for name in names_in(divisor))


def _plain_accumulation(constants: Constants) -> int:
    number = constants.first(*(name for name in constants.names() if says(name, "accumulation")))
    return int(number.value) if number is not None else 1


def _factors(job: Job, node: Node, right: Value, text: str, constants: Constants) -> tuple[Number | None, Number | None]:
    """B and T among the factors of a divisor: from the configuration values in it, else from the names in its source."""
    numbers = {number.name.rpartition(".")[2]: number for number in job.numbers(right)}
    for name in re.findall(r"[A-Za-z_]\w*", text):
        known = numbers.get(name) or constants.get(name)
        if known is not None:
            numbers.setdefault(name, known)
    batch = next((numbers[name] for name in BATCH_NAMES if name in numbers), None)
    block = next((numbers[name] for name in BLOCK_NAMES if name in numbers), None)
    return batch, block


def _named(job: Job, node: Node, text: str, value: int, numbers: list[Number]) -> Number:
    """A number under the name that it has in the configuration, else in the source."""
    one = numbers[0] if len(numbers) == 1 and numbers[0].value == value else None
    return one or assigned_number(job.program, node, text, value) or Number(text, value, node.place)


def _check(job: Job, left: Value, value: int) -> Divisibility | None:
    """The check of the program that concerns this dividend."""
    for check in divisibility_checks(job.program):
        if check.left == left or (job.value(check.left) == value and check.left_text == left.text):
            return check
        if job.value(check.left) == value and job.reaches(check.node) is not False:
            return check
    return None
