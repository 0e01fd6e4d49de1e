"""A straggler in words."""

from __future__ import annotations

from ddp_audit.compare.waiting.measure import Waiting
from ddp_audit.compare.waiting.straggler import Straggler
from ddp_audit.compare.waiting.timeline import BACKWARD, CHECKPOINT, DATA, EVALUATION, FORWARD, OPTIMIZER

_WHERE = {
    DATA: "in data loading",
    FORWARD: "in the forward pass",
    BACKWARD: "in the backward pass",
    OPTIMIZER: "in the optimizer",
    CHECKPOINT: "in saving a checkpoint",
    EVALUATION: "in the evaluation",
}
_LOOK = {
    DATA: "Look at its loader workers, its disk and the size of its samples.",
    OPTIMIZER: "Look at what it does between its backward pass and the end of the step.",
    CHECKPOINT: "Look at its disk and at the size of what it saves.",
    EVALUATION: "Look at how many samples it evaluates.",
}
_COMPUTES = "Look at the load and the clock of its device and its CPU, and at the size of its batches."
_CODE = "Look at what this rank alone does there, such as logging."


def time_text(seconds: float) -> str:
    """A duration in a unit that suits it.

    >>> time_text(0.00042), time_text(0.0042), time_text(4.2)
    ('0.42 ms', '4.2 ms', '4.2 s')
    """
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1000:.2g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def percent(share: float) -> str:
    """A share with one place.

    >>> percent(0.0512)
    '5.1 %'
    """
    return f"{100 * share:.1f} %"


def straggler_text(found: Straggler, of: Waiting) -> str:
    """What is slow, where and by how much; then what to look at."""
    others = "the other rank" if len(of.ranks) == 2 else "the other ranks"
    at = "" if found.site is None else f" at {found.site}"
    where = _WHERE.get(found.phase, "in code between the phases of a step")
    amount = f"{time_text(found.seconds)} ({percent(found.share)}) longer a step than {others}"
    if found.alone:
        first = f"Rank {found.rank} takes {amount} {where}{at}, which only this rank does."
    else:
        first = f"Rank {found.rank} takes {amount} {where}{at}."
    more = [_WHERE.get(phase, "in other code").removeprefix("in ") for phase in found.phases[1:]]
    also = f" It is also slower in {', '.join(more)}." if more else ""
    held_up = of.ranks[found.rank].held_up
    waits = f" In {of.steps} steps {others} waited {time_text(held_up)} for it ({percent(held_up / of.seconds)} of the time)."
    look = _LOOK.get(found.phase, _COMPUTES if found.phase in (FORWARD, BACKWARD) or more else _CODE)
    return f"{first}{also}{waits} {look}"
