"""DDP404: a number of one rank is reported, or decides, as if it were that of all."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.questions import calls_of, trains
from ddp_audit_rules.buffers._reports import Report, of_one_rank, reports, shared_names


class RankLocalMetric(Rule):
    code = "DDP404"
    name = "rank-local-metric"
    level = "info"
    summary = (
        "A loss or metric that each rank computed from its own part of the data is printed, logged, given to a scheduler or "
        "compared with the best one so far, and no collective made it that of all ranks."
    )
    rationale = (
        "The number speaks of one part in W of the data, noisier than it looks and different on each rank. Where ranks decide "
        "by it, they decide differently: one lowers its learning rate, stops or saves, and the others do not."
    )
    exceptions = (
        "Values that were reduced or gathered, also under another name or for rank 0 alone; metric objects that synchronise in "
        "compute(); an evaluation that rank 0 runs by itself; progress bars; frameworks that gather; all but one place of a "
        "script: first a decision, then what is said of an evaluation, then a training loss."
    )
    trace_evidence = "Nothing that a trace holds: it has no values of metrics. Replicas that part after a scheduler's step show it."
    source = (
        "torch 2.13: DDP averages gradients and leaves losses alone. Seen in runs on two ranks: losses differ between ranks; "
        "with ReduceLROnPlateau fed by each rank's own loss, learning rates and then parameters part."
    )
    fix_hint = (
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
        frameworks = program.frameworks
        if frameworks.reports_metrics or frameworks.may_shard_loaders:
            return
        if not (trains(program) or (frameworks.leaves_loop and calls_of(program, "backward"))):
            return
        shared = shared_names(program)
        found = [one for one in reports(program) if not one.texts & shared]
        if found:
            yield self._finding(min(found, key=lambda one: one.order))

    def _finding(self, one: Report) -> Finding:
        one_rank = of_one_rank(one.node)
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
            "sums and counts that are added up are right always. One rank's value is enough as a progress indicator."
        )
        related = [] if one.place == one.node.span else [Related(one.node.span.path, one.node.span.line, "report", one.role)]
        return self.finding(one.place, message, explanation, related=related + guard_relations(one.node))
