"""DDP307: an evaluation counts some rows twice, or gathers them in another order."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Collective, Iterate, LoaderMade, Node
from ddp_audit.tree.questions import is_kind, training_passes
from ddp_audit_rules.data._padded_rows import combined_after, leaves_rows_out, padding_sampler
from ddp_audit_rules.facts.evidence import samples_alone


class EvalPadding(Rule):
    code = "DDP307"
    name = "eval-padding"
    level = "info"
    summary = (
        "An evaluation over a loader with a DistributedSampler that pads, whose results are added up or gathered over the "
        "ranks without the repeated rows being taken out; said once for a script, at the sampler."
    )
    rationale = (
        "The sampler makes the parts of all ranks equally long by repeating rows from the start of the order. Where the number "
        "of rows is not a multiple of the world size, up to W - 1 rows count twice: the metric depends on how many ranks "
        "evaluate, and with shuffle on (the default) on which rows the shuffle puts first. Gathered predictions come "
        "interleaved besides, not in the order of the data set."
    )
    exceptions = (
        "drop_last=True in the sampler (the rows left out are another matter); gather_for_metrics; rows taken out by number, "
        "by id or by cutting the gathered list; parts that are cut by rank without padding; results that stay on their rank; "
        "training; frameworks that take the rows out."
    )
    trace_evidence = "Nothing that a trace holds: it knows ranks and replicas of a sampler, not the number of its rows."
    source = (
        "torch 2.13, utils/data/distributed.py: indices += indices[:padding_size] unless drop_last. Seen in a run: two ranks "
        "evaluate 8 of 7 rows."
    )
    fix_hint = (
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
        if program.frameworks.shards_loaders or leaves_rows_out(program):
            return
        trained = {one.loader.key for one in training_passes(program)}
        loaders = {n.object.key: n for n in program.of(LoaderMade) if n.object is not None}
        for iterate in program.of(Iterate):
            loader = loaders.get(iterate.object.key) if iterate.object is not None else None
            if loader is None or iterate.grad is not False or loader.object is None or loader.object.key in trained:
                continue
            sampler = padding_sampler(program, loader)
            combined = combined_after(program, iterate)
            if sampler is not None and combined is not None and not any("rank" in g.taint for g in iterate.guards):
                yield self._finding(sampler, iterate, combined)
                return

    def _finding(self, sampler: Node, iterate: Node, combined: Collective) -> Finding:
        gathers = is_kind(combined.op, "gathers")
        message = "This sampler repeats rows until all ranks have equally many, so the evaluation counts some twice" + (
            ", and gathers them interleaved by rank." if gathers else "."
        )
        explanation = (
            "Where the world size does not divide the number of rows, up to one row less than the world size counts twice. The "
            "error is small, and it changes with the number of processes, which makes results of two machines differ. It does "
            "not matter for a rough look during training, nor where the world size divides the number of rows."
        )
        related = [
            Related(iterate.span.path, iterate.span.line, "loop", "the evaluation"),
            Related(combined.span.path, combined.span.line, "collective", "puts the results of the ranks together"),
        ]
        return self.finding(sampler.span, message, explanation, related=related + guard_relations(sampler), guards=sampler.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Not-observed where the sampler had one replica."""
        return "not-observed" if samples_alone(run, finding) else "not-exercised"
