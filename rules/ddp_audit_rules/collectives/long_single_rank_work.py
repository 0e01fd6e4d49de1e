"""DDP211: one rank works for long while the others stand in a collective, whose timeout runs."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.termination import failed_by_peer
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node, Wrap
from ddp_audit.tree.questions import anchor
from ddp_audit_rules.collectives._regions import what_of
from ddp_audit_rules.collectives._waiting import Wait, waits
from ddp_audit_rules.facts.parted import failed_of_its_own


class LongSingleRankWork(Rule):
    code = "DDP211"
    name = "long-single-rank-work"
    level = "warning"
    summary = (
        "Work that may take minutes (tokenising, preparing, downloading, mapping a function over a data set, a long "
        "sleep) on some ranks after init_process_group, while the others wait in a barrier or the next collective, and the "
        "timeout of the group is the default or shorter than the work. An evaluation loop on one rank, and the main-process-first "
        "context of Accelerate and Trainer, are an info."
    )
    rationale = (
        "A collective gives up after 10 minutes with NCCL and 30 with gloo, whatever the rank that is missing does. The job then "
        "dies in the middle of the preparation, on the first run with a big data set."
    )
    exceptions = (
        "Work before init_process_group, a timeout that the program gives itself (unless the work is known to be longer), work "
        "behind a test for its cached result, and ranks that wait on another group."
    )
    trace_evidence = (
        "Some rank waits in the collective after the work, or gives up in it, while another has not come to it and did not fail."
    )
    source = (
        "torch 2.13, distributed/constants.py and distributed_c10d.py (default timeouts); seen in runs with gloo: a rank in a "
        "barrier gives up after the timeout although the other works."
    )
    fix_hint = "prepare the data before the job or before init_process_group, share the work out, or raise `timeout=`"
    outcome = "hang all"
    bad = '''"""Rank 0 prepares the data for longer than the others wait."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=timedelta(seconds=1))
rank = dist.get_rank()
if rank == 0:
    time.sleep(2)  # tokenises the data set
dist.barrier()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("for longer than the others wait", "and the others wait long enough").replace("seconds=1", "minutes=10")

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for wait in waits(context.program):
            place = _place(wait)
            if place not in seen:
                seen.add(place)
                yield self._finding(wait)

    def _finding(self, wait: Wait) -> Finding:
        who = "One process" if wait.guard is None else _upper(wait.guard.ranks())
        where = "at the barrier of this context" if wait.region is None else f"in {_what(wait.region, _span(wait))}"
        minutes = f"{wait.limit / 60:g}-minute" if wait.limit >= 60 else f"{wait.limit:g}-second"
        verb, _, rest = wait.what.partition(" ")
        does = f"{verb.removesuffix('s')} {rest}".strip() if "ranks" in who else wait.what
        certain = "exceeds" if wait.sure else "may exceed"
        message = f"{who} {does} while the others wait {where}: this {certain} the {minutes} timeout."
        explanation = (
            "The timeout of a collective runs from the moment in which a rank calls it; that the missing rank is busy does not "
            "help. The default is 10 minutes with NCCL and 30 with gloo. It does no harm while the work is shorter."
        )
        related = guard_relations(wait.node)
        if wait.region is not None:
            region = wait.region
            related.append(Related(region.span.path, region.span.line, region.kind, f"where the others wait: {region.text}"))
        severity = "info" if wait.short else None
        return self.finding(
            _span(wait), message, explanation, related=related, severity=severity, guards=wait.node.guards
        )  # fmt: skip

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a rank stands in the collective, or gave up in it, and another never came there."""
        region = next((r for r in finding.related if r.text.startswith("where the others wait")), None)
        there = set() if region is None else run.ranks_at(region.path, region.line)
        if not there:
            return "not-exercised"
        absent = set(run.ranks) - there
        gone = any(failed_of_its_own(run.ranks[rank]) for rank in absent)
        if absent and not gone and any(run.ranks[rank].waiting is not None or failed_by_peer(run.ranks[rank]) for rank in there):
            return "confirmed"
        return "not-exercised" if absent else "not-observed"


def _place(wait: Wait) -> object:
    return wait.guard.span if wait.short and wait.guard is not None else _span(wait)


def _span(wait: Wait) -> Span:
    return wait.node.span if wait.guard is None else anchor(wait.node, wait.guard)


def _what(node: Node, near: Span) -> str:
    return f"the DDP constructor of line {node.span.line}" if isinstance(node, Wrap) else what_of(node, near)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
