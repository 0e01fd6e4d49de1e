"""DDP801: each rank divides its loss by a count of its own, and DDP takes the mean of these means."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.faults import TOKEN_WEIGHTS
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import LABELS
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Program
from ddp_audit.tree.questions import first_of_each_place, loss_of, scales_by_hand, trained_by_ddp
from ddp_audit.tree.values import Value
from ddp_audit_rules.facts.evidence import faults_at, looks_at
from ddp_audit_rules.numerics._local_counts import local_count


class MeanOfMeans(Rule):
    code = "DDP801"
    name = "mean-of-means"
    level = "warning"
    summary = (
        "A loss of a DDP model that is divided by a count of what is in this rank's batch (tokens under a mask, positives, boxes), "
        "or is the mean over a selection, or over the labels that a loss function does not leave out (ignore_index), where that "
        "count is not summed over the ranks."
    )
    rationale = (
        "DDP takes the mean of the ranks' gradients, so every rank weighs the same. Where one has 10 tokens and another 1000, each "
        "of the 10 weighs a hundred times as much as one of the 1000. The result differs from that of one process with the same "
        "data, and changes with the number of ranks."
    )
    exceptions = (
        "Counts that are all-reduced; counts that are equal on all ranks (the size of a batch, of a tensor); means of each "
        "sequence; values that are only printed; losses that the wrapped module computes itself, whose counts are not followed. "
        "The default mean of a loss function with a negative ignore_index is only possible where nothing is seen to put it into "
        "the labels: most sets are packed so that the counts agree. Labels hold a class such as 0 or 255 as they are stored."
    )
    trace_evidence = (
        "Backward passes of `cross_entropy` or `nll_loss` that were looked at: means over numbers of labels that differ between "
        "the ranks (the silent fault token-weights). Of other counts a trace knows nothing."
    )
    source = (
        "torch 2.13, csrc/distributed/c10d/reducer.cpp: gradients are divided by the number of ranks and summed, whatever is "
        "behind them. Seen in runs: two ranks with 1 and 3 tokens give another gradient than one process with 4."
    )
    outcome = "shows gradient is 1.33 of that of one process"
    fix_hint = (
        "divide by the count of all ranks and multiply by their number: `loss.sum() * world_size / count`, with "
        "`dist.all_reduce(count)` before"
    )
    bad = '''"""Each rank takes the mean over its own tokens, 1 on rank 0 and 3 on rank 1. Compares with one process."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
alone = torch.nn.Linear(1, 1, bias=False)
model = DDP(torch.nn.Linear(1, 1, bias=False))
model.module.load_state_dict(alone.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
values = torch.tensor([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
masks = torch.tensor([[True, False, False], [True, True, True]])

mask = masks[rank % 2]
losses = model(values[rank % 2, :, None])[:, 0]
count = mask.sum()
loss = (losses * mask).sum() / count
loss.backward()

alone(values[masks][:, None]).mean().backward()
ratio = (model.module.weight.grad / alone.weight.grad).item()
optimizer.step()
if rank == 0:
    print(f"the gradient is {ratio:.2f} of that of one process", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace("takes the mean over its own tokens, 1 on rank 0 and 3 on rank 1", "divides by the tokens of all ranks")
        .replace("count = mask.sum()\n", "count = mask.sum()\ndist.all_reduce(count)\n")
        .replace("sum() / count", "sum() * dist.get_world_size() / count")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if scales_by_hand(program):
            return
        for backward in first_of_each_place(program.of(Backward)):
            if not trained_by_ddp(program, backward):
                continue
            loss = loss_of(backward.target, program)
            if loss.is_global:
                continue
            found = local_count(loss)
            if found is None:
                continue
            count, sure = found
            message = (
                f"Each rank takes the mean over its own {_named(count)} and DDP the mean of means, so elements of ranks with "
                "fewer weigh more."
            )
            explanation = (
                "The gradient is that of one process only where the counts are equal on all ranks at every step. All ranks step "
                "alike, so nothing fails and nothing differs between them."
            )
            forwards = program.forwards_of(backward.target)
            related = [Related(n.span.path, n.span.line, "forward", n.text) for n in forwards[:1]]
            related += _wraps(program, backward.target)
            confidence = "likely" if sure else "possible"
            yield self.finding(backward.span, message, explanation, related=related, confidence=confidence, guards=backward.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the numbers of labels that cross_entropy and nll_loss took the mean over in this backward."""
        from ddp_audit.compare.unequal import LEAST

        if faults_at(run, TOKEN_WEIGHTS, finding.span):
            return "confirmed"
        looks = looks_at(run, LABELS, finding.span)
        return "not-observed" if len(looks) > 1 and min(map(len, looks.values())) >= LEAST else "not-exercised"


def _wraps(program: Program, loss: Value | None) -> list[Related]:
    wraps = program.wraps()
    found = [wraps[n.object.key] for n in program.forwards_of(loss) if n.object is not None and n.object.key in wraps]
    return [Related(w.span.path, w.span.line, "wrap", "takes the mean of the ranks' gradients") for w in found[:1]]


def _named(count: Value) -> str:
    return f"`{count.text}`" if count.text else "elements"
