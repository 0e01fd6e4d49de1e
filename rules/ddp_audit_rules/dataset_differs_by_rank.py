"""DDP306: the ranks index data sets that are not the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BATCH, FORWARD
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.program.loading import DISTRIBUTED, class_text, lines_with, loads_for_user, samplers_of, shares_out, trains
from ddp_audit.program.made import behind
from ddp_audit.program.model import Node, Program
from ddp_audit.program.order import HASHES, LISTING, unordered
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import Const, Items, Made, Obj, Unknown, Value, options
from ddp_audit.rule import Context, Rule, guard_relations

_SHUFFLES = {
    "random.shuffle": "random", "random.sample": "random", "numpy.random.shuffle": "numpy", "numpy.random.permutation": "numpy",
    "torch.randperm": "torch",
}  # fmt: skip
_PLACES = {LISTING: r"listdir\(|scandir\(|os\.walk\(|glob\(|iterdir\(", HASHES: r"\bset\(|\{.*\bfor\b"}


class DatasetDiffersByRank(Rule):
    code = "DDP306"
    name = "dataset-differs-by-rank"
    level = "error"
    what = (
        "A data set that a DistributedSampler divides by index and that each rank makes differently: split or shuffled without a "
        "seed, in the order of a directory listing, or in the order of a set."
    )
    why = (
        "A sampler gives each rank other numbers, and relies on every rank to mean the same samples by them. Where it does not, "
        "some samples come on two ranks and others on none, and of a split each rank has one of its own: what one rank "
        "evaluates on, another trains on."
    )
    quiet = (
        "A seed equal on all ranks before the draw, a generator given to it, a draw in the process that spawns the ranks or on one "
        "of them; listings and sets that are sorted; sets of numbers; data that is divided by rank in another way; data sets that "
        "could not be followed; frameworks that share the data out."
    )
    confirmed = "Ranks whose sampler divides the data set have a batch in common, in one epoch."
    source = (
        "torch 2.13, utils/data/dataset.py: random_split draws from the default generator, which a process without a seed starts "
        "from chance. Seen in runs on two ranks: the splits overlap. Python salts the hashes of texts in each process anew."
    )
    remedy = "split and shuffle with `generator=torch.Generator().manual_seed(seed)`, and sort what comes from a listing or a set"
    outcome = "shows trained on what another rank evaluates"
    bad = '''"""Splits 64 points for training and evaluation; each rank draws a split of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("gloo")
try:
    points = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    train, test = random_split(points, [48, 16])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = set()
    for (x,) in loader:
        seen |= set(x.flatten().mul(64).int().tolist())
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    held_out = [None] * dist.get_world_size()
    dist.all_gather_object(held_out, sorted(test.indices))
    if any(seen & set(indices) for indices in held_out):
        print("trained on what another rank evaluates", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("each rank draws a split of its own", "all ranks draw the same split").replace(
        "[48, 16])", "[48, 16], generator=torch.Generator().manual_seed(1))"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if loads_for_user(program) or not trains(program):
            return
        seen: set[object] = set()
        for user, data in _divided(program):
            for cause in _causes(program, data):
                if cause.span not in seen:
                    seen.add(cause.span)
                    yield self._finding(cause, user)

    def _finding(self, cause: _Cause, user: Node) -> Finding:
        explanation = (
            "The sampler deals out indices; index 5 is another sample on another rank. Some samples are then trained on twice and "
            "others never, and nothing fails. " + cause.when
        )
        related = [Related(user.span.path, user.span.line, "sampler", "divides the data set by index")]
        if cause.node is not None:
            related += guard_relations(cause.node)
        return self.finding(
            cause.span,
            cause.message,
            explanation.strip(),
            related=related,
            severity=cause.severity,
            confidence="likely" if cause.sure else "possible",
            guards=() if cause.node is None else cause.node.guards,
            fix=cause.fix,
        )

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where two ranks had an equal batch; whole batches rarely are, so that nothing else is told by a run."""
        batches: dict[int, set[str]] = {}
        for rank, event in run.all_events():
            mark = event.detail.get("fingerprint" if event.kind == BATCH else "batch")
            if event.kind in (BATCH, FORWARD) and mark:
                batches.setdefault(rank, set()).add(str(mark))
        ranks = sorted(batches)
        equal = any(batches[a] & batches[b] for a in ranks for b in ranks if a < b)
        return "confirmed" if equal else "not-covered"


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a data set differs between ranks, at which place."""

    span: Span
    message: str
    when: str
    severity: str
    node: Node | None = None
    sure: bool = True
    fix: Fix | None = None


def _divided(program: Program) -> Iterator[tuple[Node, Value]]:
    """Data sets that are divided by index: those of distributed samplers, and splits that a loader trains on without one."""
    for sampler in program.of("sampler"):
        if sampler.detail["cls"] == DISTRIBUTED and "dataset" in sampler.args:
            yield sampler, sampler.args["dataset"]
    for loader in program.of("loader"):
        if "dataset" in loader.args and any(shares_out(program, sampler) for sampler in samplers_of(loader)):
            yield loader, loader.args["dataset"]


def _causes(program: Program, data: Value, depth: int = 0) -> Iterator[_Cause]:
    """What makes a data set another one on each rank, looked for in what it was made of."""
    for option in options(data):
        if not isinstance(option, Obj) or option.kind != "dataset" or depth > 4:
            continue
        if option.cls == "random_split":
            yield from _split(program, option)
        parts = [part for part in option.info or () if isinstance(part, Value)]
        held = program.contents.get(option.key, {})
        for part in (*parts, *held.values()):
            if isinstance(part, Obj):
                yield from _causes(program, part, depth + 1)
                continue
            for value in behind(part, _sorted):
                yield from _shuffled(program, value)
        if not any(isinstance(option.cls, ClassInfo) and word in class_text(option.cls) for word in (".sort(", "sorted(")):
            yield from _in_any_order(program, option, [*parts, *held.values()])


def _sorted(value: Value) -> bool:
    return isinstance(value, Unknown) and value.by is not None and value.by.name == "builtins.sorted"


def _split(program: Program, part: Obj) -> Iterator[_Cause]:
    for node in program.of("split"):
        generator = node.args.get("generator")
        if node.span != part.made or (generator is not None and not (isinstance(generator, Const) and generator.value is None)):
            continue
        told = _seeded(program, node, "torch")
        if told is None:
            continue
        message = (
            f"`{node.text}` draws from {told[0]}, so each rank has a split of its own and trains on what another evaluates on."
        )
        fix = Fix("unsafe", "split with `generator=torch.Generator().manual_seed(seed)`")
        yield _Cause(node.span, message, told[1], "warning" if told[1] else "error", node, fix=fix)


def _shuffled(program: Program, value: Value) -> Iterator[_Cause]:
    if not (isinstance(value, Unknown) and value.by is not None and value.by.name in _SHUFFLES):
        return
    by: Made = value.by
    generator = by.argument("generator")
    if generator is not None and not (isinstance(generator, Const) and generator.value is None):
        return
    last = by.name.rsplit(".", 1)[-1]
    nodes = [n for n in program.of("random", "draw") if n.detail["what"].rsplit(".", 1)[-1] == last]
    at = by.argument("at")
    if isinstance(at, Const):
        nodes = [n for n in nodes if n.span == at.value]
    told = _seeded(program, nodes[0], _SHUFFLES[by.name]) if nodes else None
    if told is not None:
        message = f"`{nodes[0].text}` draws from {told[0]}, so each rank has the samples in an order of its own."
        sure = not nodes[0].guards  # under a condition another way may have been taken
        yield _Cause(nodes[0].span, message, told[1], "warning" if told[1] else "error", nodes[0], sure)


def _seeded(program: Program, node: Node, library: str) -> tuple[str, str] | None:
    """From what a draw is seeded differently on the ranks, and when it is not; None where all ranks draw alike."""
    spawns = [n for n in program.of("spawn") if n.span not in node.calls and n.number > node.number]
    if node.rank_guards or spawns or (node.function != "<module>" and not node.calls):
        return None
    seeds = [n for n in program.of("seed") if n.number < node.number and _seeds(n, library) and not n.rank_guards]
    if not seeds:
        known = {(n.span.path, n.span.line) for n in program.of("seed")}
        calls = lines_with(program, r"(?<!def )\b\w*(seed|set_determin)\w*\(")
        elsewhere = any((path, number) not in known for path, number, _ in calls)  # in a call that was not followed
        return None if elsewhere else ("a generator that no seed starts", "")
    last = seeds[-1]
    if last.args["seed"].taint:
        return f"a generator that line {last.span.line} seeds differently on each rank", ""
    if any(guard.against_default for guard in last.guards):
        return "a generator that no seed starts by default", f"With the seed of line {last.span.line} all ranks draw alike."
    return None


def _seeds(seed: Node, library: str) -> bool:
    what = seed.detail["what"]
    if "cuda" in what:
        return False
    if what.endswith("manual_seed"):
        return library == "torch"
    if what.endswith(("set_seed", "everything")):
        return True
    return library == ("numpy" if what.startswith(("np.", "numpy.")) else "random")


def _in_any_order(program: Program, data: Obj, values: list[Value]) -> Iterator[_Cause]:
    """A listing or a set behind the samples that was not sorted, by the values that still have no order."""
    for value in values:
        found = next((why for inner in _elements(value) if (why := unordered(inner)) is not None), None)
        if found is None or found.reason not in _PLACES or data.made is None:
            continue
        span = _place(program, data, _PLACES[found.reason])
        if found.reason == LISTING:
            message = "The data set holds its files as the file system lists them, an order that another host need not have."
            when = "On one host, or one shared file system, the ranks mostly see one order."
        else:
            message = "The data set follows the order of a set, which is another one in each process."
            when = "A set of numbers, or one PYTHONHASHSEED for all ranks, has the same order everywhere."
        fix = Fix("safe", "sort what the listing gives", "listing") if found.reason == LISTING else None
        yield _Cause(span, message, when, "warning", None, found.sure, fix)
        return


def _elements(value: Value) -> Iterator[Value]:
    """A value, and what it takes its elements from."""
    for inner in behind(value, _sorted):
        if _sorted(inner):
            continue
        yield inner
        if isinstance(inner, Items) and inner.over is not None:
            yield inner.over


def _place(program: Program, data: Obj, pattern: str) -> Span:
    """The line that lists or makes the set, in the data set's class; else the place where the data set is made."""
    assert data.made is not None
    if isinstance(data.cls, ClassInfo):
        source, node = data.cls.frame.source, data.cls.node
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            line = source.lines[number - 1]
            if re.search(pattern, line.split("#", 1)[0]):
                return Span(source.path, number, len(line) - len(line.lstrip()) + 1, number, len(line.rstrip()) + 1)
    return data.made
