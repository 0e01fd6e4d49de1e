"""DDP209: process groups that the ranks do not create alike, and calls on a group by or about ranks outside of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ddp_audit.compare.run import RAISED, RecordedRun
from ddp_audit.compare.termination import exited_in_order, failed_by_itself
from ddp_audit.events import COLLECTIVE, EXCEPTION, GROUP
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import CallNode, Collective
from ddp_audit.tree.questions import group_of
from ddp_audit_rules.collectives._group_creations import Misuse
from ddp_audit_rules.collectives._groups import misuses
from ddp_audit_rules.facts.parted import counts_at, failed_of_its_own, parted


class SubgroupMisuse(Rule):
    code = "DDP209"
    name = "subgroup-misuse"
    level = "error"
    summary = (
        "new_group() that only some ranks call, or that the ranks call with different lists or in another order; a collective on "
        "a group whose src or dst is not a member of it; a collective on a group that ranks outside of it call too."
    )
    rationale = (
        "new_group() is a call of all ranks, members or not: the groups are counted by each process, and what one rank calls its "
        "second group must be that of all. Otherwise the ranks look for each other under different names and wait until the "
        "timeout. src and dst are global ranks: one that is not a member raises ValueError on the members that call. A rank "
        "outside of the group gets a warning, and its tensor stays as it was."
    )
    exceptions = (
        "Each group made on all ranks in one order, groups of one rank each, use_local_synchronization=True, group_src and "
        "group_dst, device meshes, groups whose members are not known, and calls under a test of membership."
    )
    trace_evidence = "The ranks' sequences of new_group calls differ, one rank raises in the collective, or waits in it."
    source = (
        "torch 2.13, distributed/distributed_c10d.py (names of groups are counters of the process; src and dst are translated "
        "into the group); seen in runs with gloo."
    )
    fix_hint = "create every group on every rank in one order, outside of rank tests, and name roots by global rank or by group_src"
    outcome = "hang all"
    bad = '''"""Rank 0 alone makes a group for itself; the next group has another number on the other rank."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if rank == 0:
    first = dist.new_group([0])
everybody = dist.new_group([0, 1])
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total, group=everybody)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 0 alone makes a group for itself; the next group has another number on the other rank", "All ranks make all groups"
    ).replace("if rank == 0:\n    first =", "first =")

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for misuse in misuses(context.program):
            if misuse.node.span not in seen:
                seen.add(misuse.node.span)
                yield self._finding(misuse)

    def _finding(self, misuse: Misuse) -> Finding:
        node = misuse.node
        related = guard_relations(node)
        group = group_of(node) if isinstance(node, CallNode) else None
        place = getattr(group, "made", None)
        if isinstance(node, Collective) and place is not None:
            related.append(Related(place.path, place.line, "group", "the group is made here"))
        return self.finding(
            node.span, misuse.message, misuse.explanation, related=related, severity=misuse.severity, guards=node.guards
        )

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the ranks' new_group calls or collectives part here, or an error of its own ended a rank here."""
        place = (finding.span.path, finding.span.line, finding.span.end_line)
        at = run.events_at(*place)
        if not at:
            return "not-exercised"
        raised = any(event.kind == EXCEPTION or run.ranks[rank].state == RAISED for rank, event in at)
        if raised and any(failed_by_itself(run.ranks[rank]) for rank, _ in at):
            return "confirmed"
        made = [
            [e.detail.get("ranks") for e in one.events if e.kind == GROUP and e.detail.get("action") == "new"]
            for one in run.ranks.values()
            if not failed_of_its_own(one)
        ]
        if any(a != b for one, other in itertools.pairwise(made) for a, b in zip(one, other, strict=False)):
            return "confirmed"
        whole = all(map(exited_in_order, run.ranks.values()))
        if whole and len({len(one) for one in made}) > 1:
            return "confirmed"
        return "confirmed" if parted(run, counts_at(run, [place], (COLLECTIVE,)), [place]) else "not-observed"
