"""DDP404: a number of one rank is reported, or decides, as if it were that of all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.program.loading import lines_with, loads_for_user, trains
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.model import Node, Program
from ddp_audit.program.source import function_text
from ddp_audit.program.values import DATA, Bound, Const, Expr, Obj, Unknown, Value
from ddp_audit.rule import Context, Rule, guard_relations

_METRIC = re.compile(
    r"loss|(^|[_.@ ])acc(\d|s?$|[_@])|accura|metric|score|ppl|perplexity|(^|_)auc|iou|(^|_)f1|bleu|correct|err(or)?$|"
    r"(^|_)(mse|mae|psnr|ssim|wer|cer|top\d)",
    re.IGNORECASE,
)
_EVALUATION = re.compile(r"val(id\w*)?(_|$|[.\[ ])|test|eval|(^|_)dev(_|$)", re.IGNORECASE)
_RANK = re.compile(r"rank|is_main|is_master|main_process|master_process|primary", re.IGNORECASE)


class RankLocalMetric(Rule):
    code = "DDP404"
    name = "rank-local-metric"
    level = "info"
    what = (
        "A loss or metric that each rank computed from its own part of the data is printed, logged, given to a scheduler or "
        "compared with the best one so far, and no collective made it that of all ranks."
    )
    why = (
        "The number speaks of one part in W of the data, noisier than it looks and different on each rank. Where ranks decide "
        "by it, they decide differently: one lowers its learning rate, stops or saves, and the others do not."
    )
    quiet = (
        "Values that were reduced or gathered, also under another name or for rank 0 alone; metric objects that synchronise in "
        "compute(); an evaluation that rank 0 runs by itself; progress bars; frameworks that gather; all but one place of a "
        "script: first a decision, then what is said of an evaluation, then a training loss."
    )
    confirmed = "Nothing that a trace holds: it has no values of metrics. Replicas that part after a scheduler's step show it."
    source = (
        "torch 2.13: DDP averages gradients and leaves losses alone. Seen in runs on two ranks: losses differ between ranks; "
        "with ReduceLROnPlateau fed by each rank's own loss, learning rates and then parameters part."
    )
    remedy = (
        "all-reduce the sum and the count (`dist.all_reduce(torch.stack([total, count]))`) and divide, before the number is "
        "reported or decides"
    )
    outcome = "shows rank 0: validation loss 0.25; shows rank 1: validation loss 2.25"
    bad = '''"""Fits a constant; each rank validates on its own part and reports that."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")


def validate(model, loader):
    total, count = torch.zeros(()), torch.zeros(())
    with torch.no_grad():
        for x, y in loader:
            total += (model(x) - y).pow(2).sum()
            count += len(x)
    return (total / count).item()


try:
    x = torch.ones(8, 1)
    data = TensorDataset(x, torch.tensor([0.5, 1.5] * 4).unsqueeze(1))
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
    for x, y in loader:
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    val_loss = validate(model, loader)
    print(f"rank {dist.get_rank()}: validation loss {val_loss:.2f}", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("reports that", "all add up what they found").replace(
        "    return (total", "    dist.all_reduce(total)\n    dist.all_reduce(count)\n    return (total"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        fabric = "lightning" in program.frameworks and any(True for _ in lines_with(program, r"\bFabric\("))
        if (not fabric and loads_for_user(program)) or program.frameworks & {"deepspeed", "horovod"}:
            return
        if not (trains(program) or (fabric and any(True for _ in lines_with(program, r"\.backward\(")))):
            return
        shared = _shared(program)
        found = [one for one in _reports(program) if not one.texts & shared]
        if found:
            yield self._finding(min(found, key=lambda one: one.order))

    def _finding(self, one: _Report) -> Finding:
        one_rank = _of_one_rank(one.node)
        if one.decides:
            message = (
                f"Each rank decides by its own `{one.name}` here, which no collective made equal: ranks may decide differently."
            )
        elif one_rank:
            message = f"One rank reports its own `{one.name}`, which comes from its part of the data, as that of all ranks."
        else:
            message = f"Each rank reports its own `{one.name}`, computed from its part of the data; it is not that of all ranks."
        explanation = (
            "DDP averages gradients and nothing else. A mean over the means of ranks is right where all had equally many samples; "
            "sums and counts that are added up are right always. As a rough sign of progress a number of one rank may do."
        )
        related = [] if one.place == one.node.span else [Related(one.node.span.path, one.node.span.line, "report", one.role)]
        return self.finding(one.place, message, explanation, related=related + guard_relations(one.node))

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """A trace holds no metrics."""
        return "not-covered"


@dataclass(frozen=True, slots=True)
class _Report:
    """A metric that is told or decides at `node`; `place` is where it became a number, if that is near."""

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


def _reports(program: Program) -> Iterator[_Report]:
    evaluated = [n for n in program.of("forward") if n.grad is False]
    alone = bool(evaluated) and all(_of_one_rank(n) for n in evaluated)
    for node in program.of("report", "jump"):
        if node.function != "<module>" and not node.calls:
            told = _returned(node)
            if told is not None and not alone:
                yield told
        elif node.kind == "report":
            decides = node.detail["what"] in ("scheduler", "choice")
            for value in node.args.values():
                one = _metric(value)
                if one is None or (decides and _of_one_rank(node)) or _reads_as_reduced(value):
                    continue
                evaluation = decides or _is_evaluation(one, node)
                made = _Report(node, one.text, node.span, "told here", decides, evaluation, _texts(value))
                exact = (
                    (made.evaluation and alone) or _with_evaluation(node, evaluated) or _reduced_before(program, made, evaluated)
                )
                if not exact:
                    yield made if decides else _at_number(program, made, value)
                    break


def _of_one_rank(node: Node) -> bool:
    """Whether a test of the rank is on the way to a node, though perhaps of a rank that could not be followed."""
    return any("rank" in g.taint or _RANK.search(g.text) for g in node.guards)


def _with_evaluation(node: Node, evaluated: list[Node]) -> bool:
    """Whether a node stands under the same test of the rank as an evaluation, which is then of all the data."""
    tests = [g for g in node.guards if "rank" in g.taint or _RANK.search(g.text)]
    return any(g is test for test in tests for forward in evaluated for g in forward.guards)


def _reads_as_reduced(value: Value) -> bool:
    """Whether a call that could not be followed has a hand in a value and says by its name that it reduces."""
    return any(re.search(r"reduce|gather|synchroni", f"{operation_of(inner)} {inner.text}") for inner in behind(value))


def _reduced_before(program: Program, one: _Report, evaluated: list[Node]) -> bool:
    """Whether something is reduced or gathered between the evaluation (or the training forward) and what is said of it.

    What is reduced goes by other names in helpers, and in jobs of one process not through them.
    """
    forwards = evaluated if one.evaluation and evaluated else list(program.of("forward"))
    last = max((f.number for f in forwards if f.number < one.node.number), default=None)
    if last is None:
        return False
    return any(
        last < n.number < one.node.number and re.search("reduce|gather", str(n.detail["op"])) and "grad" not in n.text
        for n in program.of("collective")
    )


def _returned(node: Node) -> _Report | None:
    """What an evaluation gives that the job's defaults do not run."""
    value = node.detail.get("value") if node.kind == "jump" else None
    if not isinstance(value, Value) or node.grad is not False or not _EVALUATION.search(node.function):
        return None
    one = _metric(value)
    return None if one is None else _Report(node, one.text, node.span, "returned here", False, True, _texts(value))


def _metric(value: Value) -> Value | None:
    """The nearest value with the name of a metric that differs with the local data."""
    for inner in behind(value):
        if isinstance(inner, (Obj, Bound)) or not inner.text or DATA not in inner.taint:
            continue
        if isinstance(inner, Expr) and inner.op == "format":
            continue
        if _METRIC.search(inner.text) and len(inner.text) < 60 and "\n" not in inner.text:
            return inner
    return None


def _is_evaluation(value: Value, node: Node) -> bool:
    return bool(_EVALUATION.search(value.text) or _EVALUATION.search(node.text))


def _texts(value: Value) -> frozenset[str]:
    return frozenset(inner.text.split("[")[0] for inner in behind(value) if inner.text and DATA in inner.taint)


def _shared(program: Program) -> frozenset[str]:
    """The names of what collectives send or receive: one of them stands for all ranks, or for rank 0."""
    found = set()
    for node in program.of("collective"):
        if node.detail["op"] not in ("barrier", "monitored_barrier", "broadcast", "broadcast_object_list"):
            values = [*node.args.values(), *([] if node.target is None else [node.target])]
            found |= {inner.text.split("[")[0] for value in values for inner in behind(value) if inner.text}
    return frozenset(found)


def _at_number(program: Program, one: _Report, value: Value) -> _Report:
    """The report, placed where the metric left its tensor if that is a few lines before."""
    for inner in behind(value):
        at = inner.by.argument("at") if isinstance(inner, Unknown) and inner.by is not None and inner.by.name == "item" else None
        if isinstance(at, Const) and _same_function(program, at.value, one.place):
            return _Report(one.node, one.name, at.value, one.role, one.decides, one.evaluation, one.texts)
    return one


def _same_function(program: Program, number: Span, told: Span) -> bool:
    """Whether a place is a few lines before another one in a function."""
    near = number.path == told.path and 0 <= told.line - number.line <= 8
    return near and function_text(program, told.path, told.line) == function_text(program, number.path, number.line)
