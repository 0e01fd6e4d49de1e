"""DDP204: an exception that one rank meets, swallowed or answered with a collective, around what the ranks do together."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.termination import failed_by_itself
from ddp_audit.events import BACKWARD, COLLECTIVE, EXCEPTION, FORWARD, STEP
from ddp_audit.findings import Finding
from ddp_audit.rule import Context, Rule
from ddp_audit_rules.collectives._absent import absent
from ddp_audit_rules.collectives._failures import failures
from ddp_audit_rules.facts.parted import counts_at, parted


class RankLocalException(Rule):
    code = "DDP204"
    name = "rank-local-exception"
    level = "warning"
    summary = (
        "A handler after which the rank goes on, around a collective or a training step (`except RuntimeError: continue`); a jump "
        "out of a handler over the step; a collective in a handler or in finally; and a name or attribute that only some ranks "
        "make and all use."
    )
    rationale = (
        "What one rank meets (out of memory, a bad sample, a missing file) the others do not. They stand in the collective that "
        "the failing rank has left, until the timeout, or the ranks go on one batch apart. A process that exits is not a problem: "
        "torchrun ends the others at once."
    )
    exceptions = (
        "Handlers that raise or exit on every way, exceptions that come on all ranks alike (ImportError, StopIteration, ..), a "
        "flag that is all-reduced before anyone skips, nothing collective afterwards, another collective as a substitute for one "
        "that torch lacks, the clipping of averaged gradients, names that are tested for, that the class gives, or that all ranks "
        "make elsewhere."
    )
    trace_evidence = (
        "The ranks' counts of collectives part after this place, or an exception was raised here on some ranks and not on all."
    )
    source = (
        "Seen in runs with gloo on torch 2.13: a rank that skips a batch hangs the others at the end, and an exception in "
        "backward that is caught makes every later forward raise; torch/distributed/elastic ends the workers when one exits."
    )
    fix_hint = "let the exception end the process, or share a flag by all_reduce(MAX) and let all ranks skip"
    outcome = "hang 0"
    bad = '''"""One sample is broken, and a rank cannot train on its batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def load(step, rank):
    if step == 1 and rank == 1:
        raise ValueError("a broken sample")
    return torch.randn(8, 4)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    try:
        loss = model(load(step, rank)).pow(2).mean()
        loss.backward()
    except ValueError as error:
        print("skipped:", error, flush=True)
        continue
    optimizer.step()
dist.destroy_process_group()
'''
    good = (
        bad[: bad.index("    try:")]
        + """    broken = torch.zeros(1)
    try:
        x = load(step, rank)
    except ValueError as error:
        print("broken:", error, flush=True)
        broken += 1
    dist.all_reduce(broken)
    if broken.item():
        continue
    model(x).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
    )

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for failure in (*failures(context.program), *absent(context.program)):
            if failure.span not in seen:
                seen.add(failure.span)
                yield self.finding(
                    failure.span,
                    failure.message,
                    failure.explanation,
                    related=failure.related,
                    confidence=failure.confidence,
                    guards=failure.node.guards if failure.node is not None else (),
                )

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where an exception of its own ended a rank here, and not all, or the ranks' counts of what they do together
        differ."""
        here = (finding.span.path, finding.span.line, finding.span.end_line)
        raised = {rank for rank, event in run.events_at(*here) if event.kind == EXCEPTION and failed_by_itself(run.ranks[rank])}
        if raised and raised != set(run.ranks):
            return "confirmed"
        places = [here, *((r.path, r.line, r.line) for r in finding.related if r.text.startswith("what the other ranks do"))]
        counts = counts_at(run, places, (FORWARD, COLLECTIVE, BACKWARD, STEP))
        if not counts:
            return "not-exercised"
        return "confirmed" if parted(run, counts, places) else "not-observed"
