"""DDP205: ranks go through a training loop a different number of times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD, COLLECTIVE, FORWARD, STEP
from ddp_audit.findings import Finding, Related
from ddp_audit.machine.matching import COMPLETES
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules.collectives._regions import what_of
from ddp_audit_rules.collectives._uneven import Uneven, uneven_loops
from ddp_audit_rules.facts.parted import counts_at, parted


class UnevenIterations(Rule):
    code = "DDP205"
    name = "uneven-iterations"
    level = "warning"
    summary = (
        "A loop around a wrapped forward, a backward or a collective, whose number of iterations is this rank's own: over a share "
        "like `data[rank::world_size]`, a part of a split, a shard, a data set or sampler that deals out by rank without evening "
        "out, or a while loop on the rank's clock or data."
    )
    rationale = (
        "The rank with more iterations waits in the first collective of those that the others do not have, until the timeout, or "
        "its collective pairs with what the others do after the loop. It shows only where the share does not come out even, "
        "often in the last batch of an epoch."
    )
    exceptions = (
        "DistributedSampler (pads to equal lengths), Join contexts, contiguous shares of equal length, loops over a count that was "
        "all-reduced or is an option, islice and zip with a range, frameworks that even out (Accelerate, Lightning, Trainer). A "
        "loop that is left on a step count is reported with low confidence."
    )
    trace_evidence = "The ranks' counts of what they do together in the loop differ."
    source = (
        "Seen in runs with gloo on torch 2.13: `data[rank::2]` of seven elements gives 4 and 3 iterations, and the longer rank "
        "waits; torch/utils/data/distributed.py pads to equal lengths; torch/distributed/algorithms/join.py."
    )
    fix_hint = "give all ranks one count: DistributedSampler, all_reduce(MIN) of the length, or Join"
    of_sequences = True
    outcome = "hang 0"
    bad = '''"""Each rank trains on each second sample, and one of them has more of these."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(7, 4)
loader = DataLoader(data[rank::world_size], batch_size=1)
for x in loader:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = (
        bad.replace("Each rank trains on each second sample, and one of them has more of these", "The sampler gives equal shares")
        .replace("import DataLoader", "import DataLoader, DistributedSampler")
        .replace("data[rank::world_size], batch_size=1", "data, batch_size=1, sampler=DistributedSampler(data)")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        if not context.program.frameworks.shards_loaders:
            for uneven in uneven_loops(context.program):
                if uneven.loop.kind == "while" or not _comes_out_even(context):
                    yield self._finding(uneven)

    def _finding(self, uneven: Uneven) -> Finding:
        loop, region = uneven.loop, uneven.region
        head = replace(loop.span, end_line=loop.span.line, end_column=loop.span.column + 3)
        message = (
            f"Ranks can run this loop unequally often ({uneven.reason}); the one with more turns waits in "
            f"{what_of(region, loop.span)}."
        )
        explanation = (
            "Each iteration runs collectives that need all ranks. The rank with the longer share issues some that the others never "
            "issue: it waits until the timeout, or they pair with what the others do after the loop. It works where the counts "
            "happen to be equal."
        )
        related = [Related(region.span.path, region.span.line, region.kind, f"what the ranks do together: {region.text}")]
        related += guard_relations(region)
        confidence = "likely" if uneven.sure else "possible"
        return self.finding(head, message, explanation, related=related, confidence=confidence, guards=region.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the ranks' counts of what they do together in the loop differ."""
        places = [(r.path, r.line, r.line) for r in finding.related if r.text.startswith("what the ranks do together")]
        counts = counts_at(run, places, (FORWARD, COLLECTIVE, BACKWARD, STEP))
        if not counts:
            return "not-exercised"
        return "confirmed" if parted(run, counts, places) else "not-observed"


def _comes_out_even(context: Context) -> bool:
    """Whether all ranks were followed from the first statement to the last, and none waits for another: the lengths are known."""
    run = context.exploration.whole()
    return run is not None and run.kind == COMPLETES and not run.assumptions
