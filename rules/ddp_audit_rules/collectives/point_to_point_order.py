"""DDP210: sends and receives in an order in which ranks wait for each other, or without a partner."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE, POINT_TO_POINT
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules.collectives._messages import Message, Stuck, stuck_messages
from ddp_audit_rules.facts.parted import failed_of_its_own, has_diverged, lacks_partner, stalled


class PointToPointOrder(Rule):
    code = "DDP210"
    name = "point-to-point-order"
    level = "warning"
    summary = (
        "send and recv that wait in a circle (both peers send first, every rank of a ring sends first), and a send, a receive or a "
        "message of a batch whose partner no rank issues."
    )
    rationale = (
        "send() returns when the other rank receives. Ranks that all send first wait for each other until the timeout; with NCCL "
        "a message without a partner also holds up what comes after it on the same stream."
    )
    exceptions = (
        "Even ranks send first and odd ranks receive first, one batch_isend_irecv with both sides, isend before recv, pipelines, "
        "peers that cannot be computed from the rank, and groups other than the default one."
    )
    trace_evidence = "Ranks stand in send or recv at this place for good."
    source = (
        "Seen in runs with gloo on torch 2.13: two ranks that send two numbers or 40 MB to each other first both wait; "
        "torch/distributed/distributed_c10d.py (send waits for its work)."
    )
    fix_hint = "post both with batch_isend_irecv, or let even ranks send first and odd ranks receive first"
    outcome = "hang all"
    bad = '''"""Neighbours exchange their losses; both send before they receive."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
mine, theirs = loss.detach(), torch.zeros(())
dist.send(mine, (rank + 1) % world_size)
dist.recv(theirs, (rank - 1) % world_size)
print(theirs.item(), flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("both send before they receive", "all messages of a rank are posted together").replace(
        "dist.send(mine, (rank + 1) % world_size)\ndist.recv(theirs, (rank - 1) % world_size)\n",
        "send = dist.P2POp(dist.isend, mine, (rank + 1) % world_size)\nreceive = dist.P2POp(dist.irecv, theirs, (rank - 1) % "
        "world_size)\nfor work in dist.batch_isend_irecv([send, receive]):\n    work.wait()\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for stuck in stuck_messages(context.program):
            span = stuck.messages[0].node.span
            if span not in seen:
                seen.add(span)
                yield self._finding(stuck)

    def _finding(self, stuck: Stuck) -> Finding:
        first = stuck.messages[0]
        if stuck.cycle:
            message = f"{_who(stuck)} wait in a circle: {_does(first)} waits for a rank that waits in another message."
        else:
            message = f"{_does(first)[:1].upper()}{_does(first)[1:]} has no partner: no rank issues the message that it waits for."
        explanation = (
            "A blocking message returns when its partner has come, with gloo and with NCCL alike, however small it is. It works "
            "only where the tensors or the ranks differ from what the conditions here say."
        )
        others = {(m.node.span, m.rank): m for m in stuck.messages[1:]}
        related = [Related(m.node.span.path, m.node.span.line, "message", f"{_does(m)} waits too") for m in others.values()]
        related += guard_relations(first.node)
        return self.finding(first.node.span, message, explanation, related=related[:8], guards=first.node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a rank stood in a send or receive here for good, or until its partner's process had ended."""
        at = run.events_at(finding.span.path, finding.span.line, finding.span.end_line)
        messages = [event for _, event in at if event.kind == COLLECTIVE and event.op in POINT_TO_POINT]
        if not messages:
            return "not-exercised"
        waiting = [one.waiting for one in run.ranks.values() if one.waiting is not None]
        stands = any(event in waiting for event in messages)
        explained = any(map(failed_of_its_own, run.ranks.values()))  # by a partner that failed
        if not explained and lacks_partner(run, [(finding.span.path, finding.span.line, finding.span.end_line)]):
            return "confirmed"
        if not stands:
            return "not-observed"
        return "confirmed" if not explained and (stalled(run) or has_diverged(run)) else "not-exercised"


def _does(message: Message) -> str:
    verb = "send to" if message.sends else "receive from"
    peer = "any rank" if message.peer is None else f"rank {message.peer}"
    return f"the {verb} {peer} on rank {message.rank}"


def _who(stuck: Stuck) -> str:
    ranks = sorted({m.rank for m in stuck.messages})
    return "Ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}" if len(ranks) > 1 else f"Rank {ranks[0]} and another"
