"""Runs programs on the machine and on real DDP, and says where the two differ."""

from __future__ import annotations

from typing import Any

from predictor import Case, Predictor, Step, without
from real_operations import edit_factor, input_value, weight
from real_ranks import WORLD_SIZE, RealRanks, Result

from ddp_audit.events import COLLECTIVE, POINT_TO_POINT, Event
from ddp_audit.machine import errors
from ddp_audit.machine.gradient import Gradient
from ddp_audit.machine.process_group import Outcome, run_ranks

FIELDS = ("op", "group", "numel", "dtype", "root", "reduce_op", "origin")


def gradient_value(gradient: Gradient, position: int, rank: int, size: int) -> float | None:
    """The value of every element of a gradient that the machine says is made of these terms."""
    if gradient.terms is None:
        return None
    total = 0.0
    for term in gradient.terms:
        ranks = [r for r in range(size) if r not in term.absent] if term.averaged else [rank]
        before = term.edited_before if term.averaged else term.edited
        mean = sum(input_value(r, term.source) * edit_factor(r) ** before for r in ranks) / len(ranks)
        for edited in term.means:
            mean *= sum(edit_factor(r) ** edited for r in range(size)) / size
        own = edit_factor(rank) ** term.edited if term.averaged else 1
        total += float(mean * own * weight(position) * term.factor / size**term.divided)
    return total


def disagreement(case: Case, real: RealRanks) -> str | None:
    """Where the machine and torch differ on a program that is the same for all ranks; None where they agree."""
    real = real.of(len(case.programs))
    result = real.run(case.programs, case.model, case.options)
    if result.kind != "completes":
        return f"the real run {result.kind} at operations {result.positions}"
    for rank, (predictor, program) in enumerate(zip(Predictor.all(case), case.programs, strict=True)):
        steps = predictor.run(program)
        for number, (predicted, actual) in enumerate(zip(steps, result.steps[rank], strict=True)):
            operation = program[number - 1] if number else ["construct"]
            place = f"rank {rank}, operation {number} {operation}"
            difference = compare_step(predicted, actual, rank, len(case.programs))
            if difference:
                return f"{len(case.programs)} ranks, {place}: {difference}"
    return None


def outcome_disagreement(case: Case, real: RealRanks) -> str | None:
    """Where the machine and torch differ on a case whose ranks run different programs: its end, and where each rank stands.

    A busy machine looks like a hang, so a disagreement about one is checked again with more patience.
    """
    steps = predict(case)
    predicted = end_of(steps)
    result = real.run(case.programs, case.model, case.options)
    difference = compare_outcome(steps, predicted, result)
    # So does a rank that is done and gives its groups back while the other one is still connecting to it.
    if difference and (result.kind == "hangs" or "connectFullMesh" in difference):
        difference = compare_outcome(steps, predicted, real.run(case.programs, case.model, case.options, timeout=10.0))
    return difference


def predict(case: Case) -> list[list[Step]]:
    """What the machine says of every rank, each as if its calls returned."""
    return [predictor.run(program) for predictor, program in zip(Predictor.all(case), case.programs, strict=True)]


def end_of(steps: list[list[Step]]) -> Outcome:
    return run_ranks([[step.events for step in rank] for rank in steps])


def predicted_outcome(case: Case) -> Outcome:
    """The end that the machine predicts for a case."""
    return end_of(predict(case))


def compare_outcome(steps: list[list[Step]], predicted: Outcome, result: Result) -> str | None:
    if not predicted.certain:
        return None
    if predicted.kind != result.kind:
        return f"predicted {predicted.kind} ({predicted.explanation}), torch {result.kind} at operations {result.positions}"
    if result.kind == "aborts":
        return None
    for rank, own in enumerate(steps):
        stop, stopped = operation_of(own, predicted.positions[rank]), result.positions[rank]
        stop = result.lengths[rank] if stop is None else stop
        if stop != stopped:
            return f"rank {rank}: predicted to stop in operation {stop}, stopped in {stopped} ({predicted.explanation})"
        for number, (step, actual) in enumerate(zip(own, result.steps[rank], strict=False)):
            difference = compare_error(step, actual) or compare_events(step, actual)
            if difference:
                return f"rank {rank}, operation {number}: {difference}"
    return None


def operation_of(steps: list[Step], position: int) -> int | None:
    """The operation that holds the event at `position`; None where it is past the last one."""
    for number, step in enumerate(steps):
        if position < len(step.events):
            return number
        position -= len(step.events)
    return None


def compare_step(predicted: Step, actual: dict[str, Any], rank: int, size: int) -> str | None:
    difference = compare_error(predicted, actual) or compare_events(predicted, actual)
    if difference:
        return difference
    for position, (name, gradient) in enumerate(predicted.gradients.items()):
        value, real = gradient_value(gradient, position, rank, size), actual["gradients"][name]
        if (value is None) != (real is None) or (
            not close(value, real, 0.002 if predicted.rounded else 1e-5 if size > 2 else 0.0)
            and not gradient.racing
            and not gradient.unsettled
        ):
            return f"gradient of {name}: predicted {gradient.terms} = {value}, torch has {actual['gradients'][name]}"
    return None


def close(value: float | None, real: float | str | None, tolerance: float) -> bool:
    """Whether two values are equal: of halves exactly, of thirds nearly, and to three digits where they were sent in half precision."""
    if not tolerance or value is None or not isinstance(real, float):
        return value == real
    return abs(value - real) <= tolerance * max(abs(value), abs(real))


def compare_error(predicted: Step, actual: dict[str, Any]) -> str | None:
    if bool(predicted.error) == bool(actual["error"]) and predicted.error in actual["error"]:
        return None
    unfinished = (errors.UNFINISHED, errors.ALL_MARKED)
    if predicted.halted and predicted.error in unfinished and any(text in actual["error"] for text in unfinished):
        return None
    return f"predicted error {predicted.error!r}, torch raised {actual['error'][:300]!r}"


def compare_events(predicted: Step, actual: dict[str, Any]) -> str | None:
    """None agrees with everything, as in the vocabulary of events."""
    ours, theirs = [as_recorded(event) for event in predicted.events if event.kind == COLLECTIVE], actual["events"]
    if len(ours) != len(theirs):
        return f"predicted {[brief(e) for e in ours]}, torch issued {[brief(e) for e in theirs]}"
    for a, b in zip(ours, theirs, strict=True):
        if any(a[name] is not None and a[name] != b[name] for name in FIELDS):
            differing = {name: (a[name], b[name]) for name in FIELDS if a[name] != b[name]}
            return f"predicted {brief(a)}, torch issued {brief(b)}: {differing}"
    return None


def as_recorded(event: Event) -> dict[str, Any]:
    """An event as the recorder writes it: the other end of a message is its root."""
    found = {name: getattr(event, name) for name in FIELDS}
    return {**found, "root": event.detail.get("peer")} if event.op in POINT_TO_POINT else found


def brief(event: dict[str, Any]) -> str:
    return f"{event['origin']} {event['op']} {event['dtype']}[{event['numel']}]"


def shrink_unequal(case: Case, real: RealRanks) -> Case:
    """A smaller case that still disagrees in its outcome: drops operations of either rank while it does."""
    changed = True
    while changed:
        changed = False
        for rank in range(WORLD_SIZE):
            for at in range(len(case.programs[rank]) - 1, -1, -1):
                smaller = without(case.programs[rank], at)
                programs = [smaller if r == rank else p for r, p in enumerate(case.programs)]
                if smaller is not None and outcome_disagreement(Case(case.model, case.options, programs), real):
                    case, changed = Case(case.model, case.options, programs), True
                    break
    return case


def shrink(case: Case, real: RealRanks) -> Case:
    """A smaller case that still disagrees: drops operations, then options, while it does."""
    changed = True
    while changed:
        changed = False
        program = case.programs[0]
        for at in range(len(program) - 1, -1, -1):
            smaller = without(program, at)
            if smaller is None:
                continue
            candidate = Case(case.model, case.options, [smaller] * len(case.programs))
            if disagreement(candidate, real):
                case, program, changed = candidate, smaller, True
                break
        for name in {option.split("_")[0] for option in case.options}:
            candidate = Case(case.model, {k: v for k, v in case.options.items() if k.split("_")[0] != name}, case.programs)
            if disagreement(candidate, real):
                case, changed = candidate, True
        for what in ("params", "buffers") if "param_to_hook_all_reduce" not in case.options else ():
            for item in list(case.model[what]):
                if what == "params" and len(case.model[what]) == 1:
                    continue
                candidate = Case({**case.model, what: [i for i in case.model[what] if i is not item]}, case.options, case.programs)
                if disagreement(candidate, real):
                    case, changed = candidate, True
    return case
