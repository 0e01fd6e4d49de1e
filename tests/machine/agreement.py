"""Draws short programs, runs each on the machine and on real DDP, and says where the two differ."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from real_ranks import WORLD_SIZE, RealRanks, Result, input_value, weight

from ddp_audit.events import Event
from ddp_audit.machine.ddp import Ddp, Handle
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.module import ModuleSpec, ParamSpec
from ddp_audit.machine.process_group import Outcome, ProcessGroup, run_ranks
from ddp_audit.machine.reducer import Gradient

FIELDS = ("op", "numel", "dtype", "root", "reduce_op", "origin")


@dataclass
class Case:
    """A module, the options of its wrapper, and a program for each rank."""

    model: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    programs: list[list[list[Any]]] = field(default_factory=list)


@dataclass
class Step:
    """What one operation did on one rank, predicted."""

    error: str
    events: list[Event]
    gradients: dict[str, Gradient]


class Predictor:
    """The machine's side of `real_ranks.Executor`: the same operations on `Ddp` and `ProcessGroup`."""

    def __init__(self, rank: int, case: Case) -> None:
        model, options = case.model, case.options
        params = tuple(ParamSpec(n, product(shape), dtype, grad, len(shape)) for n, shape, dtype, grad in model["params"])
        self.rank = rank
        self.ddp = Ddp(ModuleSpec(params, tuple(tuple(b) for b in model["buffers"])), **options)
        self.group = ProcessGroup()
        self.outputs: list[Handle | None] = []
        self.spoiled: set[int] = set()
        self.contexts: list[Any] = []

    def run(self, program: list[list[Any]]) -> list[Step]:
        steps = []
        for operation in [["construct"], *program]:
            error, events = "", []
            try:
                events = self.execute(operation)
            except MachineError as problem:
                error, events = problem.text, problem.events
            gradients: dict[str, Gradient] = {}
            if operation[0] != "construct" or not error:
                gradients = {name: Gradient(g.terms, g.racing) for name, g in self.ddp.gradients.items()}
            steps.append(Step(error, list(events), gradients))
            if operation[0] == "construct" and error:
                break
        return steps

    def execute(self, operation: list[Any]) -> list[Event]:
        name, *arguments = operation
        if name == "construct":
            return self.ddp.construct()
        if name in ("forward", "module"):
            mode, training, used = arguments
            self.outputs.append(None)
            call = self.ddp.forward if name == "forward" else self.ddp.module_forward
            result = call(grad=mode == "grad", training=training, used=None if used is None else frozenset(used))
            # The machine numbers outputs that exist; inputs are numbered by calls, failed ones included.
            result.handle.number = len(self.outputs)
            self.outputs[-1] = result.handle
            return result.events
        if name == "backward":
            which, retain = arguments
            handles = [self.outputs[i] for i in which]
            if any(h is None for h in handles) or self.spoiled & set(which):
                return []
            try:
                return self.ddp.backward([h for h in handles if h is not None], retain_graph=retain)
            except MachineError:
                self.spoiled.update(which)
                raise
        if name == "fail":
            self.outputs.append(None)
            return self.ddp.failing_forward(grad=arguments[0] == "grad")
        if name == "extend":
            handle = self.outputs[arguments[0]]
            if handle is not None and arguments[0] not in self.spoiled and handle.grad:
                self.ddp.extend(handle, frozenset(arguments[1]) & set(self.ddp.gradients))
        elif name == "autograd_grad":
            handle = self.outputs[arguments[0]]
            if handle is not None and arguments[0] not in self.spoiled and handle.grad:
                return self.ddp.autograd_grad([handle], retain_graph=True)
        elif name in ("freeze", "replace") and arguments[0] not in self.ddp.gradients:
            pass
        elif name == "freeze":
            self.ddp.set_requires_grad(arguments[0], arguments[1])
        elif name == "replace":
            self.ddp.replace_parameter(arguments[0])
        elif name == "flag":
            self.ddp.require_backward_grad_sync = arguments[0]
        elif name == "enter":
            self.contexts.append(self.ddp.no_sync())
            self.contexts[-1].__enter__()
        elif name == "exit":
            if self.contexts:
                self.contexts.pop().__exit__(None, None, None)
        elif name == "zero":
            self.ddp.zero_grad(set_to_none=arguments[0])
        elif name == "step":
            self.ddp.step()
        elif name == "all_reduce":
            return self.group.all_reduce(arguments[0], arguments[1], arguments[2].lower())
        elif name == "broadcast":
            return self.group.broadcast(arguments[0], arguments[1], root=arguments[2])
        elif name == "all_gather":
            return self.group.all_gather(arguments[0], arguments[1])
        elif name == "reduce":
            return self.group.reduce(arguments[0], arguments[1], root=arguments[2])
        elif name == "barrier":
            return self.group.barrier()
        elif name == "all_gather_object":
            return self.group.all_gather_object()
        elif name == "gather_object":
            return self.group.gather_object(arguments[1])
        elif name == "broadcast_object_list":
            return self.group.broadcast_object_list(len(arguments[0]), root=arguments[1])
        else:
            raise ValueError(f"no operation {name}")
        return []


def product(shape: list[int]) -> int:
    result = 1
    for n in shape:
        result *= n
    return result


def gradient_value(gradient: Gradient, position: int, rank: int) -> float | None:
    """The value of every element of a gradient that the machine says is made of these terms."""
    if gradient.terms is None:
        return None
    total = 0.0
    for term in gradient.terms:
        ranks = range(WORLD_SIZE) if term.averaged else (rank,)
        total += sum(input_value(r, term.source) for r in ranks) / len(ranks) * weight(position) / WORLD_SIZE**term.divided
    return total


def disagreement(case: Case, real: RealRanks) -> str | None:
    """Where the machine and torch differ on a program that is the same for all ranks; None where they agree."""
    result = real.run(case.programs, case.model, case.options)
    if result.kind != "completes":
        return f"the real run {result.kind} at operations {result.positions}"
    for rank, program in enumerate(case.programs):
        steps = Predictor(rank, case).run(program)
        for number, (predicted, actual) in enumerate(zip(steps, result.steps[rank], strict=True)):
            operation = program[number - 1] if number else ["construct"]
            place = f"rank {rank}, operation {number} {operation}"
            difference = compare_step(predicted, actual, rank)
            if difference:
                return f"{place}: {difference}"
    return None


def outcome_disagreement(case: Case, real: RealRanks) -> str | None:
    """Where the machine and torch differ on a case whose ranks run different programs: its end, and where each rank stands.

    A busy machine looks like a hang, so a disagreement about one is checked again with more patience.
    """
    steps = predict(case)
    predicted = end_of(steps)
    result = real.run(case.programs, case.model, case.options)
    difference = compare_outcome(steps, predicted, result)
    if difference and result.kind == "hangs":
        difference = compare_outcome(steps, predicted, real.run(case.programs, case.model, case.options, timeout=10.0))
    return difference


def predict(case: Case) -> list[list[Step]]:
    """What the machine says of every rank, each as if its calls returned."""
    return [Predictor(rank, case).run(program) for rank, program in enumerate(case.programs)]


def end_of(steps: list[list[Step]]) -> Outcome:
    return run_ranks([[step.events for step in rank] for rank in steps])


def predicted_outcome(case: Case) -> Outcome:
    """The end that the machine predicts for a case."""
    return end_of(predict(case))


def compare_outcome(steps: list[list[Step]], predicted: Outcome, result: Result) -> str | None:
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


def compare_step(predicted: Step, actual: dict[str, Any], rank: int) -> str | None:
    difference = compare_error(predicted, actual) or compare_events(predicted, actual)
    if difference:
        return difference
    for position, (name, gradient) in enumerate(predicted.gradients.items()):
        value = gradient_value(gradient, position, rank)
        if value != actual["gradients"][name] and not gradient.racing:
            return f"gradient of {name}: predicted {gradient.terms} = {value}, torch has {actual['gradients'][name]}"
    return None


def compare_error(predicted: Step, actual: dict[str, Any]) -> str | None:
    if bool(predicted.error) == bool(actual["error"]) and predicted.error in actual["error"]:
        return None
    return f"predicted error {predicted.error!r}, torch raised {actual['error'][:300]!r}"


def compare_events(predicted: Step, actual: dict[str, Any]) -> str | None:
    """None agrees with everything, as in the vocabulary of events."""
    ours, theirs = [{name: getattr(event, name) for name in FIELDS} for event in predicted.events], actual["events"]
    if len(ours) != len(theirs):
        return f"predicted {[brief(e) for e in ours]}, torch issued {[brief(e) for e in theirs]}"
    for a, b in zip(ours, theirs, strict=True):
        if any(a[name] is not None and a[name] != b[name] for name in FIELDS):
            return f"predicted {brief(a)}, torch issued {brief(b)}"
    return None


def brief(event: dict[str, Any]) -> str:
    return f"{event['origin']} {event['op']} {event['dtype']}[{event['numel']}]"


# Drawing.


def draw_case(choose: random.Random, length: int = 12) -> Case:
    """A random case whose program is the same on all ranks."""
    options: dict[str, Any] = {}
    kind = choose.choice(["plain", "plain", "find_unused", "static"])
    if kind == "find_unused":
        options["find_unused_parameters"] = True
    if kind == "static":
        options["static_graph"] = True
        if choose.random() < 0.2:
            options["find_unused_parameters"] = True
    if choose.random() < 0.4:
        options["bucket_cap_mb"] = choose.choice([0.00002, 0.0001, 0.001, 25])
    for name, chance in (("forward_sync_buffers", 0.25), ("broadcast_buffers", 0.25)):
        if choose.random() < chance:
            options[name] = choose.choice([True, False])
    if choose.random() < 0.1:
        options["init_sync"] = False
    if choose.random() < 0.25:
        options["gradient_as_bucket_view"] = True
    program = draw_program(choose, length, names := [f"p{i}" for i in range(choose.randint(1, 6))])
    return Case(draw_model(choose, names), options, [program] * WORLD_SIZE)


def draw_unequal_case(choose: random.Random, length: int = 8) -> Case:
    """A random case in which rank 0 or 1 leaves out, adds or changes up to two operations of the common program."""
    case = draw_case(choose, length)
    case.options.pop("init_sync", None)
    names = [p[0] for p in case.model["params"]]
    program = [list(operation) for operation in case.programs[0]]
    extra = {"eval": ("forward", "no_grad"), "eval_grad": ("forward", "grad"), "bypass": ("module", "no_grad")}
    for _ in range(choose.randint(1, 2)):
        at = choose.randrange(len(program))
        what = choose.choice(["drop", "drop", "eval", "eval_grad", "bypass", "barrier", "all_reduce", "flag", "used"])
        if what == "drop":
            program = without(program, at) or program
        elif what == "used" and program[at][0] == "forward":
            program[at] = [*program[at][:3], [n for n in names if choose.random() < 0.6] or names[:1]]
        elif what == "flag":
            program.insert(at, ["flag", choose.random() < 0.5])
        elif what in ("barrier", "all_reduce"):
            program.insert(at, ["barrier"] if what == "barrier" else ["all_reduce", choose.choice([1, 3, 64]), "float32", "SUM"])
        else:
            extra = {"eval": ("forward", "no_grad"), "eval_grad": ("forward", "grad"), "bypass": ("module", "no_grad")}.get(what)
            if extra is not None:
                program = with_output(program, at, [*extra, False, None])
    ending = choose.choice([[], [["barrier"]], [["all_reduce", 1, "float32", "SUM"], ["barrier"]]])
    other = choose.randrange(2)
    programs = [[*case.programs[0], *ending], [*case.programs[0], *ending]]
    programs[other] = [*program, *ending]
    return Case(case.model, case.options, programs)


def with_output(program: list[list[Any]], at: int, operation: list[Any]) -> list[list[Any]]:
    """The program with one more forward; later outputs are renumbered."""
    number = sum(op[0] in ("forward", "module", "fail") for op in program[:at])
    out = []
    for op in program:
        if op[0] == "backward":
            op = ["backward", [w + (w >= number) for w in op[1]], op[2]]
        elif op[0] in ("extend", "autograd_grad"):
            op = [op[0], op[1] + (op[1] >= number), *op[2:]]
        out.append(op)
    return [*out[:at], operation, *out[at:]]


def draw_model(choose: random.Random, names: list[str]) -> dict[str, Any]:
    shapes = [[1], [3], [2, 4], [16], [5, 5], [2, 2, 8], []]
    mixed = choose.random() < 0.2
    params = []
    for name in names:
        dtype = choose.choice(["float32", "float64"]) if mixed else "float32"
        params.append([name, choose.choice(shapes), dtype, choose.random() > 0.1])
    if not any(p[3] for p in params) and choose.random() < 0.8:
        params[0][3] = True
    buffers = [
        [f"b{i}", choose.choice([1, 4, 7]), choose.choice(["float32", "int64"])] for i in range(choose.choice([0, 0, 1, 2, 3]))
    ]
    return {"params": params, "buffers": buffers}


def draw_program(choose: random.Random, length: int, names: list[str]) -> list[list[Any]]:
    """Operations of one rank. Backward passes choose among the outputs that exist and are not freed yet."""
    program: list[list[Any]] = []
    live: list[int] = []  # outputs that a backward may still start from
    outputs = 0
    partial = choose.random() < 0.3

    def forward(name: str = "forward", mode: str | None = None) -> None:
        nonlocal outputs
        mode = mode or choose.choice(["grad"] * 5 + ["no_grad", "no_grad", "inference"])
        used = None
        if partial and choose.random() < 0.4:
            used = [n for n in names if choose.random() < 0.6] or names[:1]
        program.append([name, mode, choose.random() < 0.75, used])
        if mode == "grad":
            live.append(outputs)
        outputs += 1

    def backward() -> None:
        if not live:
            return
        which = [live[-1]] if choose.random() < 0.6 else sorted(choose.sample(live, choose.randint(1, min(3, len(live)))))
        retain = choose.random() < 0.2
        program.append(["backward", which, retain])
        if not retain:
            for i in which:
                live.remove(i)

    common = ["forward"] * 5 + ["backward"] * 5 + ["iteration"] * 4 + ["module", "flag", "enter", "exit", "step", "zero"]
    changing = choose.random() < 0.15
    if choose.random() < 0.3:
        common += ["fail", "extend", "autograd_grad", "barrier", "all_reduce", "all_gather_object"]
    if changing:
        common += ["freeze", "replace"]
    while len(program) < length:
        action = choose.choice(common)
        if action == "forward":
            forward()
        elif action == "module":
            forward("module")
        elif action == "backward":
            backward()
        elif action == "iteration":
            forward(mode="grad")
            backward()
            if choose.random() < 0.5:
                program.extend([["step"], ["zero", True]])
        elif action == "fail":
            program.append(["fail", choose.choice(["grad", "no_grad"])])
            outputs += 1
        elif action in ("extend", "autograd_grad"):
            if live and live[-1] == outputs - 1:
                program.append([action, live[-1], *([names[: choose.randint(1, 3)]] if action == "extend" else [])])
        elif action == "all_reduce":
            program.append(["all_reduce", 3, "float32", choose.choice(["SUM", "MAX"])])
        elif action == "all_gather_object":
            program.append(["all_gather_object", "text"])
        elif action == "freeze":
            program.append(["freeze", choose.choice(names), choose.random() < 0.4])
        elif action == "replace":
            program.append(["replace", choose.choice(names)])
        elif action == "flag":
            program.append(["flag", choose.random() < 0.5])
        elif action == "zero":
            program.append(["zero", choose.random() < 0.7])
        else:
            program.append([action])
    return program


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
            candidate = Case(case.model, case.options, [smaller] * WORLD_SIZE)
            if disagreement(candidate, real):
                case, program, changed = candidate, smaller, True
                break
        for name in list(case.options):
            candidate = Case(case.model, {k: v for k, v in case.options.items() if k != name}, case.programs)
            if disagreement(candidate, real):
                case, changed = candidate, True
        for what in ("params", "buffers"):
            for item in list(case.model[what]):
                if what == "params" and len(case.model[what]) == 1:
                    continue
                candidate = Case({**case.model, what: [i for i in case.model[what] if i is not item]}, case.options, case.programs)
                if disagreement(candidate, real):
                    case, changed = candidate, True
    return case


def without(program: list[list[Any]], at: int) -> list[list[Any]] | None:
    """The program without one operation; a forward takes its backward passes along and the later outputs are renumbered."""
    name = program[at][0]
    if name not in ("forward", "module", "fail"):
        return program[:at] + program[at + 1 :]
    number = sum(op[0] in ("forward", "module", "fail") for op in program[:at])
    out = []
    for i, op in enumerate(program):
        if i == at:
            continue
        if op[0] == "backward":
            which = [w - (w > number) for w in op[1] if w != number]
            if not which:
                continue
            op = ["backward", which, op[2]]
        if op[0] in ("extend", "autograd_grad"):
            if op[1] == number:
                continue
            op = [op[0], op[1] - (op[1] > number), *op[2:]]
        out.append(op)
    return out
