"""What becomes of a learning-rate scheduler after it is made: which call prepares it, and whether a loop steps it."""

from __future__ import annotations

from ddp_audit.knowledge import framework
from ddp_audit.tree.nodes import Loop, Node, Prepare, Program, SchedulerMade, ScheduleStep
from ddp_audit.tree.values import the_object


def prepare_of(program: Program, scheduler: SchedulerMade) -> Prepare | None:
    """The call of a framework's `prepare` that is given the scheduler."""
    return next((one for one in program.of(Prepare) if _is_among(scheduler, one)), None)


def _is_among(scheduler: SchedulerMade, prepare: Prepare) -> bool:
    key = scheduler.object.key if scheduler.object is not None else None
    return framework.one(prepare.framework).steps_once_a_process and any(
        (found := the_object(value, "scheduler")) is not None and found.key == key for value in prepare.args.values()
    )


def is_stepped_in(program: Program, scheduler: Node, loop: Loop) -> bool:
    """Whether the scheduler is stepped in a loop over batches, as far as is known which one is stepped."""
    key = scheduler.object.key if scheduler.object is not None else None
    stepped = [one for one in program.of(ScheduleStep) if one.object is None or one.object.key == key]
    return any(any(around is loop for around in one.loops) for one in stepped)
