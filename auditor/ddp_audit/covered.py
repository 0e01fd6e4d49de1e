"""How far the audit of one script came: what of a training was reached, and each place that was not followed, with the reason.

Two readings are asked: the program, in which calls nested too deeply and libraries without a contract stay unknown, and the
predicted run, which ends where something may send and is not followed, or after a few optimizer steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddp_audit.events import STEP
from ddp_audit.explore.exact import NOTHING
from ddp_audit.explore.exact.state import BOUNDED, INFERRED, OPAQUE
from ddp_audit.outcome import FUNCTIONS_ONLY, IN_PART, REACHED, SEVERAL_STEPS, TO_THE_END, Coverage, NotFollowed, Script
from ddp_audit.program.nodes import Backward, Forward, Init, Prepare, Spawn, Step, UnfollowedCall, Wrap
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact.state import Doubt
    from ddp_audit.explore.proof import Predicted
    from ddp_audit.program.model import Program

_MOST = 50  # places of one script
_SEVERAL = 2  # optimizer steps: DDP rebuilds its buckets after the first, and the second is like all others
_LEADING_IN = {OPAQUE: "", INFERRED: "an exception that the audit infers ends it: "}
_ENDINGS = (" is not followed", " is inferred")  # which the list that the sentence stands in says already


def coverage_of(program: Program, predicted: Predicted | None) -> Coverage | None:
    """Return how far the audit of a script came; None where nothing in it trains."""
    seen = set(_reached(program))
    if not seen:
        return None
    left = list(_of_program(program))
    followed = FUNCTIONS_ONLY if not program.executed else IN_PART if left else TO_THE_END
    if predicted is not None and followed != FUNCTIONS_ONLY:
        stopped = [*_of_run(program.entry, predicted), *_opaque_modules(program, predicted)]
        left += stopped
        if stopped:
            followed = IN_PART
        elif followed == TO_THE_END and predicted.parting is None and (predicted.run.cut or _has_short_loops(predicted)):
            followed = SEVERAL_STEPS
    places: dict[tuple[str, int | None, str], NotFollowed] = {}
    for one in left:
        places.setdefault((one.path, one.line, "" if one.line else one.what), one)
    script = Script(program.entry, tuple(word for word in REACHED if word in seen), followed)
    return Coverage((script,), tuple(places.values())[:_MOST])


def _reached(program: Program) -> Iterator[str]:
    answers = program.frameworks
    if program.has(Init, Spawn) or answers.makes_group:
        yield "process-group"
    if program.has(Wrap, Prepare) or answers.wraps_models:
        yield "wrapper"
    for node in program.of(Backward, Step):
        if node.loops:
            yield "training-loop"
        if isinstance(node, Step):
            yield "step"
    if any(node.grad is False for node in program.of(Forward)):
        yield "evaluation"


def _of_program(program: Program) -> Iterator[NotFollowed]:
    for limit in program.limits:
        yield NotFollowed(program.entry, None, limit)
    for node in program.of(UnfollowedCall):
        yield NotFollowed(node.span.path, node.span.line, f"{node.name} may communicate, and its source is not in the project")


def _of_run(entry: str, predicted: Predicted) -> Iterator[NotFollowed]:
    """What the predicted run ends at; not a bound after several optimizer steps, up to which a run is meant to be followed."""
    run = predicted.run
    if predicted.parting is not None and not predicted.parting.rests_on:
        return  # the ranks stand for good before anything else
    for doubts in run.doubts.values():
        for doubt in doubts:
            if doubt.kind in _LEADING_IN:
                yield _doubted(entry, doubt, _LEADING_IN[doubt.kind])
    for rank, why in run.cut.items():
        steps = sum(event.kind == STEP for event in run.sequences[rank])
        if steps < _SEVERAL:
            when = "after the first" if steps else "before the first"
            yield NotFollowed(entry, None, f"the predicted run ends {when} optimizer step: {why}")
    if run.kind == NOTHING and run.why and any(run.sequences.values()):
        yield NotFollowed(entry, None, f"no run is predicted: {run.why}")


def _has_short_loops(predicted: Predicted) -> bool:
    return any(doubt.kind == BOUNDED for doubts in predicted.run.doubts.values() for doubt in doubts)


def _doubted(entry: str, doubt: Doubt, before: str) -> NotFollowed:
    path, line = doubt.place or (entry, None)
    place = place_of(path, line or 1)
    what = doubt.what.removesuffix(f" ({place})").removeprefix(f"{place}: ")
    for ending in _ENDINGS:
        what = what.removesuffix(ending)
    return NotFollowed(path, line, f"{before}{what}")


def _opaque_modules(program: Program, predicted: Predicted) -> Iterator[NotFollowed]:
    if predicted.run.opaque:
        wrap = next(program.of(Wrap), None)
        path, line = (program.entry, None) if wrap is None else (wrap.span.path, wrap.span.line)
        yield NotFollowed(path, line, "the parameters and buffers of the wrapped module are not all known")
