"""DDP214: a broadcast brings its value into a temporary that nobody reads."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import RECEIVED
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules.collectives._received import Unread, unread
from ddp_audit_rules.facts.evidence import looks_at


class ReceivedValueUnused(Rule):
    code = "DDP214"
    name = "received-value-unused"
    level = "warning"
    summary = (
        "A broadcast or broadcast_object_list whose list or tensor is made in the call (`broadcast_object_list([value], src=0)`), "
        "or is bound to a variable that nothing reads afterwards, while the ranks go on with the value that was put into it."
    )
    rationale = (
        "Both functions write what arrives into the list or tensor that they are given. A temporary is gone after the call, so "
        "every rank keeps its own value, and the ranks that were to follow the source do not. The calls match, so nothing hangs "
        "and no error says it."
    )
    exceptions = (
        "A variable that is read after the call; a value that is the same constant on all ranks, as in a broadcast that only makes "
        "the ranks meet; `to`, `cuda`, `view` and their like, which may return the tensor itself; a value that nobody uses "
        "afterwards, or that is bound again."
    )
    trace_evidence = (
        "A broadcast_object_list at this line brought a rank something else than it had put in. Of a broadcast of tensors a trace "
        "has the call alone."
    )
    source = (
        "torch 2.13, distributed/distributed_c10d.py: broadcast_object_list assigns the elements of the list that it is given. "
        "Seen in a run with gloo: rank 1 has no value after the call."
    )
    fix_hint = "bind the list to a variable, broadcast it, and read the value from it (`box = [value]`, then `value = box[0]`)"
    outcome = "shows rank 1 goes on with None"
    bad = '''"""Rank 0 chooses a threshold and sends it; the other ranks never take it out of the list."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
threshold = 0.5 if rank == 0 else None
dist.broadcast_object_list([threshold], src=0)
print(f"rank {rank} goes on with {threshold}", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("the other ranks never take it out of the list", "the others take it out of the list").replace(
        "dist.broadcast_object_list([threshold], src=0)\n",
        "box = [threshold]\ndist.broadcast_object_list(box, src=0)\nthreshold = box[0]\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        for found in unread(context.program):
            yield self._finding(found)

    def _finding(self, found: Unread) -> Finding:
        node, names = found.node, " and ".join(f"`{name}`" for name in found.names)
        where = f"`{found.holder}`" if found.holder else "a temporary"
        message = f"This {node.op} receives into {where}, which nothing reads, so each rank keeps its own {names}."
        explanation = (
            "The call changes the list or tensor that it is given and returns nothing. It does no harm where all ranks have the "
            "same value before."
        )
        related = [Related(node.span.path, node.span.line, "collective", node.text), *guard_relations(node)]
        confidence = "likely" if node.is_called else "possible"
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a rank got something else than it held; not observed where all ranks got what they held already."""
        by_rank = looks_at(run, RECEIVED, finding.span)
        changed = [event.detail.get("changed") for events in by_rank.values() for event in events]
        if True in changed:
            return "confirmed"
        return "not-observed" if len(by_rank) == len(run.ranks) > 1 and None not in changed else "not-exercised"
