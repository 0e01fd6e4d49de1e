"""What the batch of a program means, for DDP501: numbers in place of the world size, options that are not what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.launch.model import PYTHON, SPAWN, WORLD_SIZE, Launch
from ddp_audit.launch.scaling import Job, Number, depends_on_world, division_parts, starts
from ddp_audit.launch.update import Constants, Update, is_global_batch, update_of
from ddp_audit.rule import Context
from ddp_audit.tree.nodes import FloorDivision, Node, OptimizerMade, Program
from ddp_audit.tree.questions import first_of_each_place, samplers_of, says, training_passes
from ddp_audit.tree.values import Const, Default, Obj, Value, defaults_in


@dataclass(frozen=True, slots=True)
class Fixed:
    """A division by a number in the source that stands for the number of processes."""

    node: Node
    total: Number
    devices: Number


def fixed_devices(program: Program) -> Iterator[Fixed]:
    """Global batches and counts that are divided by a constant which is named as a number of processes or devices."""
    constants = Constants(Job(program, None))
    for node in first_of_each_place(program.of(FloorDivision)):
        right = node.right
        _, dividend, divisor = division_parts(program, node)
        if right is None or depends_on_world(right) or not isinstance(right, Const) or not says(divisor, "number-of-processes"):
            continue
        total, devices = constants.get(dividend), constants.get(divisor)
        named = is_global_batch(dividend) or says(dividend, "accumulation")
        if total is not None and devices is not None and named and int(devices.value) > 1:
            yield Fixed(node, total, devices)


def split_batches(program: Program) -> Iterator[tuple[Node, str]]:
    """Divisions of a batch by the number of processes: the batch is that of all of them."""
    for node in first_of_each_place(program.of(FloorDivision)):
        right, left = node.right, node.left
        target, dividend, _ = division_parts(program, node)
        if right is None or left is None or not depends_on_world(right) or depends_on_world(left):
            continue
        if says(dividend, "batch") and not any(says(name, "no-training", "batches") for name in (target, dividend)):
            yield node, dividend


def batch_per_process(program: Program) -> tuple[Node, Default, str] | None:
    """A loader whose sampler shares the data out and whose batch an option sets; with the option and its words.

    None where the batch is not an option's, or is divided by the number of processes.
    """
    for one in training_passes(program):
        batch = one.made.args.get("batch_size") if one.made is not None else None
        if one.made is None or not isinstance(batch, Const) or batch.default is None or depends_on_world(batch):
            continue
        if any(isinstance(sampler, Obj) and sampler.cls == "DistributedSampler" for sampler in samplers_of(one.made)):
            span = batch.default.span
            return one.made, batch.default, " ".join(program.line(span.path, n) for n in range(span.line, span.end_line + 1))
    return None


def says_all(words: str) -> bool:
    """Whether an option's text says that it is the batch of all processes together."""
    return says(words, "of-all-processes") and not says(words, "of-one-process")


def same_arguments(context: Context) -> Iterator[tuple[Launch, Update, Launch, Update]]:
    """Documented launches of one script with equal arguments and other numbers of processes, whose updates differ in size."""
    own = [one for one in context.documented if starts(one, context.program.entry) and one.kind not in (PYTHON, SPAWN, WORLD_SIZE)]
    first: dict[tuple[str, ...], tuple[Launch, Update]] = {}
    for launch in own:
        if not launch.world_size or launch.world_size < 2:
            continue
        update = update_of(Job(context.program, launch))
        if update is None or not update.holds or update.tokens is None:
            continue
        before = first.setdefault(launch.script_args, (launch, update))
        if before[1].tokens != update.tokens:
            yield *before, launch, update


def rates(program: Program) -> list[tuple[Node, Value]]:
    """The optimizers with their learning rates."""
    return [(node, node.lr) for node in first_of_each_place(program.of(OptimizerMade)) if node.lr is not None]


def is_option(value: Value) -> bool:
    """Whether a value is an option's default, unscaled."""
    return isinstance(value, Const) and any(default.open for default in defaults_in(value))
