"""DDP307: an evaluation counts some rows twice, or gathers them in another order."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAMPLER
from ddp_audit.findings import Finding, Related
from ddp_audit.program.loading import DISTRIBUTED, by_rank, lines_with, loads_for_user, samplers_of, training_passes
from ddp_audit.program.model import Node, Program
from ddp_audit.program.values import Obj, constant
from ddp_audit.rule import Context, Rule, guard_relations

_REDUCES = ("all_reduce", "reduce", "all_reduce_coalesced")
_GATHERS = ("all_gather", "gather", "all_gather_object", "gather_object", "all_gather_into_tensor", "all_gather_single")
_MENDED = (
    r"gather_for_metrics|dedup|duplicate|unique|Unrepeated|\[\s*:\s*len\(|\[\s*:\s*[\w.]*(num|total|size|len)\w*\]|total_size|"
    r"\{\s*(\w*id\w*|\w*ind(ex|ices)?\w*|idx|key)\s*:.*\bfor\b|remove_padding|"
    r"\w\[\s*(int\()?(\w+\[[\"'](\w*_)?(id|ids|idx|uid|guid|index)[\"']\]|(image|sample|example|question|row|item)_?id)\)?\s*\]\s*=[^=]"
)


class EvalPadding(Rule):
    code = "DDP307"
    name = "eval-padding"
    level = "info"
    what = (
        "An evaluation over a loader with a DistributedSampler that pads, whose results are added up or gathered over the "
        "ranks without the repeated rows being taken out; said once for a script, at the sampler."
    )
    why = (
        "The sampler makes the parts of all ranks equally long by repeating rows from the start of the order. Where the number "
        "of rows is not a multiple of the world size, up to W - 1 rows count twice: the metric depends on how many ranks "
        "evaluate, and with shuffle on (the default) on which rows the shuffle puts first. Gathered predictions come "
        "interleaved besides, not in the order of the data set."
    )
    quiet = (
        "drop_last=True in the sampler (the rows left out are another matter); gather_for_metrics; rows taken out by number, "
        "by id or by cutting the gathered list; parts that are cut by rank without padding; results that stay on their rank; "
        "training; frameworks that take the rows out."
    )
    confirmed = "Nothing that a trace holds: it knows ranks and replicas of a sampler, not the number of its rows."
    source = (
        "torch 2.13, utils/data/distributed.py: indices += indices[:padding_size] unless drop_last. Seen in a run: two ranks "
        "evaluate 8 of 7 rows."
    )
    remedy = (
        "evaluate on parts of unequal length (`Subset(data, range(rank, len(data), world_size))`, whose sums and counts are "
        "then all-reduced), or gather row numbers too and keep each once"
    )
    outcome = "shows evaluated 8 of 7 points"
    bad = '''"""Evaluates 7 points on two ranks and counts one of them twice."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

dist.init_process_group("gloo")


def evaluate(model, loader):
    sums = torch.zeros(2)
    with torch.no_grad():
        for (x,) in loader:
            sums += torch.stack([model(x).pow(2).sum(), torch.tensor(float(len(x)))])
    dist.all_reduce(sums)
    return sums.tolist()


try:
    points = TensorDataset(torch.arange(7.0).reshape(7, 1))
    loader = DataLoader(points, batch_size=2, sampler=DistributedSampler(points, shuffle=False))
    error, count = evaluate(DDP(torch.nn.Linear(1, 1)), loader)
    print(f"evaluated {count:.0f} of {len(points)} points", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = (
        bad.replace("and counts one of them twice", "each point once")
        .replace(
            "    loader = DataLoader(points, batch_size=2, sampler=DistributedSampler(points, shuffle=False))\n",
            "    part = Subset(points, range(dist.get_rank(), len(points), dist.get_world_size()))\n"
            "    loader = DataLoader(part, batch_size=2)\n",
        )
        .replace("DistributedSampler, Subset", "Subset")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if loads_for_user(program) or any(True for _ in lines_with(program, _MENDED)):
            return
        trained = {one.loader.key for one in training_passes(program)}
        loaders = {n.object.key: n for n in program.of("loader") if n.object is not None}
        for iterate in program.of("iterate"):
            loader = loaders.get(iterate.object.key) if iterate.object is not None else None
            if loader is None or iterate.grad is not False or loader.object is None or loader.object.key in trained:
                continue
            sampler = _padding_sampler(program, loader)
            combined = _combined(program, iterate)
            if sampler is not None and combined is not None and not any("rank" in g.taint for g in iterate.guards):
                yield self._finding(sampler, iterate, combined)
                return

    def _finding(self, sampler: Node, iterate: Node, combined: Node) -> Finding:
        gathers = combined.detail["op"] in _GATHERS
        message = (
            "This sampler repeats rows until all ranks have equally many, and the evaluation "
            + ("gathers" if gathers else "adds up")
            + " the repeated ones too: where the world size does not divide the number of rows, up to W - 1 of them count twice"
            + (", and what is gathered comes interleaved by rank." if gathers else ".")
        )
        explanation = (
            "The error is small, and it changes with the number of processes, which makes results of two machines differ. It does "
            "not matter for a rough look during training, nor where the world size divides the number of rows."
        )
        related = [
            Related(iterate.span.path, iterate.span.line, "loop", "the evaluation"),
            Related(combined.span.path, combined.span.line, "collective", "puts the results of the ranks together"),
        ]
        return self.finding(sampler.span, message, explanation, related=related + guard_relations(sampler), guards=sampler.guards)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Not-observed where the sampler had one replica."""
        begun = [e for _, e in run.events_at(finding.span.path, finding.span.line, finding.span.end_line) if e.kind == SAMPLER]
        begun += [
            e
            for place in finding.related
            if place.role == "loop"
            for _, e in run.events_at(place.path, place.line)
            if e.kind == SAMPLER
        ]
        alone = begun and all(int(e.detail.get("replicas") or 0) == 1 for e in begun)
        return "not-observed" if alone else "not-covered"


def _padding_sampler(program: Program, loader: Node) -> Node | None:
    """The node of a loader's DistributedSampler, where it is one that pads."""
    nodes = {n.object.key: n for n in program.of("sampler") if n.object is not None}
    for value in samplers_of(loader):
        node = nodes.get(value.key) if isinstance(value, Obj) and value.cls == DISTRIBUTED else None
        if node is None or by_rank(node.args.get("dataset")) or "**" in node.args:
            continue
        if "drop_last" not in node.args or constant(node.args["drop_last"]) is False:
            return node
    return None


def _combined(program: Program, iterate: Node) -> Node | None:
    """The collective that puts results of an evaluation together: after its loop, in the functions that run it, or inside it."""
    for node in program.of("collective"):
        if node.number <= iterate.number or node.detail["op"] not in (*_REDUCES, *_GATHERS):
            continue
        shared = sum(a == b for a, b in zip(node.calls, iterate.calls, strict=False))
        near = shared == len(iterate.calls)
        if shared == len(iterate.calls) - 1:  # beside the call of the function with the loop
            near = [*node.calls, node.span][shared].path == iterate.calls[-1].path
        if near and node.loops[: len(iterate.loops)] == iterate.loops and _is_result(node):
            return node
    return None


def _is_result(node: Node) -> bool:
    """Whether a collective carries what was computed, and not a flag or a gradient."""
    text = node.target.text if node.target is not None else ""
    return not re.search(r"grad|stop|flag|seed|weight|param|buffer", text) and not node.detail.get("hidden")
