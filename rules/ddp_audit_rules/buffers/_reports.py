"""Metrics that a rank computes from its own data and tells, or decides by: what DDP404 chooses from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Collective, Forward, Jump, Node, Program, ReportedValue
from ddp_audit.tree.questions import function_at, is_kind, says
from ddp_audit.tree.values import DATA, Bound, Const, Expr, Obj, Unknown, Value, behind, operation_of


@dataclass(frozen=True, slots=True)
class Report:
    """A metric that is reported or decides at `node`; `place` is where it became a number, if that is near."""

    node: Node
    name: str
    place: Span
    role: str
    decides: bool
    evaluation: bool
    texts: frozenset[str]

    @property
    def order(self) -> tuple[bool, bool, int]:
        return not self.decides, not self.evaluation, self.node.number


def reports(program: Program) -> Iterator[Report]:
    """The metrics of one rank that are reported or decide, and were not reduced."""
    evaluated = [n for n in program.of(Forward) if n.grad is False]
    alone = bool(evaluated) and all(of_one_rank(n) for n in evaluated)
    for node in program.of(ReportedValue, Jump):
        if not node.is_called:
            returned = _returned(node)
            if returned is not None and not alone:
                yield returned
        elif isinstance(node, ReportedValue):
            decides = node.what in ("scheduler", "choice")
            for value in node.args.values():
                one = _metric(value)
                if one is None or (decides and of_one_rank(node)) or _reads_as_reduced(value):
                    continue
                evaluation = decides or _is_evaluation(one, node)
                made = Report(node, one.text, node.span, "reported here", decides, evaluation, _texts(value))
                exact = (
                    (made.evaluation and alone) or _with_evaluation(node, evaluated) or _reduced_before(program, made, evaluated)
                )
                if not exact:
                    yield made if decides else _at_number(program, made, value)
                    break


def of_one_rank(node: Node) -> bool:
    """Whether a test of the rank is on the way to a node, though perhaps of a rank that could not be followed."""
    return any("rank" in g.taint or says(g.text, "main-rank") for g in node.guards)


def _with_evaluation(node: Node, evaluated: list[Forward]) -> bool:
    """Whether a node stands under the same test of the rank as an evaluation, which is then of all the data."""
    tests = [g for g in node.guards if "rank" in g.taint or says(g.text, "main-rank")]
    return any(g is test for test in tests for forward in evaluated for g in forward.guards)


def _reads_as_reduced(value: Value) -> bool:
    """Whether a call that could not be followed has a hand in a value and says by its name that it reduces."""
    return any(says(f"{operation_of(inner)} {inner.text}", "shares-between-ranks") for inner in behind(value))


def _reduced_before(program: Program, one: Report, evaluated: list[Forward]) -> bool:
    """Whether something is reduced or gathered between the evaluation (or the training forward) and what is said of it.

    What is reduced goes by other names in helpers, and in jobs of one process not through them.
    """
    forwards = evaluated if one.evaluation and evaluated else list(program.of(Forward))
    last = max((f.number for f in forwards if f.number < one.node.number), default=None)
    if last is None:
        return False
    return any(
        last < n.number < one.node.number and says(n.op, "shares-between-ranks") and not says(n, "gradient")
        for n in program.of(Collective)
    )


def _returned(node: Node) -> Report | None:
    """What an evaluation gives that the job's defaults do not run."""
    value = node.value if isinstance(node, Jump) else None
    if not isinstance(value, Value) or node.grad is not False or not says(node.function, "evaluation"):
        return None
    one = _metric(value)
    return None if one is None else Report(node, one.text, node.span, "returned here", False, True, _texts(value))


def _metric(value: Value) -> Value | None:
    """The nearest value with the name of a metric that differs with the local data."""
    for inner in behind(value):
        if isinstance(inner, (Obj, Bound)) or not inner.text or DATA not in inner.taint:
            continue
        if isinstance(inner, Expr) and inner.op == "format":
            continue
        if says(inner, "metric") and len(inner.text) < 60 and "\n" not in inner.text:
            return inner
    return None


def _is_evaluation(value: Value, node: Node) -> bool:
    return says(value, "evaluation") or says(node, "evaluation")


def _texts(value: Value) -> frozenset[str]:
    return frozenset(_name(inner) for inner in behind(value) if inner.text and DATA in inner.taint)


def _name(value: Value) -> str:
    """What holds a value, where that is an element of it: `losses` of `losses[0]`."""
    while isinstance(value, Unknown) and value.by is not None and value.by.name == "[]" and value.by.args[0].text:
        value = value.by.args[0]
    return value.text


def shared_names(program: Program) -> frozenset[str]:
    """The names of what collectives send or receive: one of them stands for all ranks, or for rank 0."""
    found = set()
    for node in program.of(Collective):
        if not is_kind(node.op, "only-from-one"):
            values = [*node.args.values(), *([] if node.target is None else [node.target])]
            found |= {_name(inner) for value in values for inner in behind(value) if inner.text}
    return frozenset(found)


def _at_number(program: Program, one: Report, value: Value) -> Report:
    """The report, placed where the metric left its tensor if that is a few lines before."""
    for inner in behind(value):
        at = inner.by.argument("at") if isinstance(inner, Unknown) and inner.by is not None and inner.by.name == "item" else None
        if isinstance(at, Const) and _same_function(program, at.value, one.place):
            return Report(one.node, one.name, at.value, one.role, one.decides, one.evaluation, one.texts)
    return one


def _same_function(program: Program, number: Span, shown: Span) -> bool:
    """Whether a place is a few lines before another one in a function."""
    near = number.path == shown.path and 0 <= shown.line - number.line <= 8
    return near and function_at(program, shown.path, shown.line) is function_at(program, number.path, number.line)
