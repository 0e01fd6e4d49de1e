"""DDP201: a collective that only some ranks issue."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Collective
from ddp_audit.tree.questions import UnmatchedCollective, anchor, asks_form, find_unmatched_collectives, reduce_op
from ddp_audit.tree.values import CLOCK, DATA, RANK, SIGNAL, Unknown
from ddp_audit_rules.facts.parted import counts_at, has_diverged, parted


class RankGuardedCollective(Rule):
    code = "DDP201"
    name = "rank-guarded-collective"
    level = "error"
    summary = (
        "A collective (or a DDP constructor, which runs several) behind a condition that lets only some ranks through, where "
        "the other ranks issue no matching one: a rank test, or a condition on what only this rank knows, in the same "
        "function or across calls."
    )
    rationale = (
        "The ranks' sequences part. The ranks in the collective wait for partners that never come, until the timeout of the "
        "group (30 minutes with gloo, 10 with NCCL), or it pairs with a later collective of the others: of equal size in "
        "silence, with mixed values, of another size or kind with an abort."
    )
    exceptions = (
        "Branches that both issue it, a first-then-others pair of barriers, collectives over a group whose members are the "
        "ranks that get there, groups that cannot be followed, conditions that are equal on all ranks (also after all_reduce "
        "or broadcast), and point-to-point operations."
    )
    trace_evidence = (
        "The ranks' sequences of collectives part, and members of the group issue different numbers of collectives at this place."
    )
    source = (
        "torch 2.13, distributed/distributed_c10d.py; seen in runs with gloo: a barrier on one rank waits until the timeout, "
        "all_reduce with SUM on one rank and MAX on the other goes on with one of the two results."
    )
    fix_hint = "issue the collective on all ranks and put only what one rank does with the result under the condition"
    of_sequences = True
    outcome = "hang all"
    bad = '''"""Rank 0 alone sums the loss over all ranks, to print it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for step in range(4):
    x = torch.randn(8, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = loss.detach()
if rank == 0:
    dist.all_reduce(total)
    print("mean loss", total.item() / dist.get_world_size(), flush=True)
dist.barrier()
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 0 alone sums the loss over all ranks, to print it", "All ranks sum the loss, rank 0 prints it"
    ).replace("if rank == 0:\n    dist.all_reduce(total)\n", "dist.all_reduce(total)\nif rank == 0:\n")

    hidden = False

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for part in find_unmatched_collectives(context.program):
            if part.node.hidden is not self.hidden:
                continue
            span = anchor(part.node, part.guard)
            if span not in seen:
                seen.add(span)
                yield self.one_finding(part)

    def one_finding(self, part: UnmatchedCollective) -> Finding:
        """The finding for one one-sided collective."""
        node, guard, span = part.node, part.guard, anchor(part.node, part.guard)
        name = node.called
        here = f"this {name}" if span == node.span else f"the {name} of {node.place} that this call leads to"
        if part.counterpart is not None:
            message = self._against(part, here)
        else:
            who = guard.ranks() if RANK in part.taint else "some ranks"
            reason = "" if RANK in part.taint else f", by a condition on {' and '.join(sorted(part.taint))}"
            message = f"{who[:1].upper()}{who[1:]} can reach {here}{reason}; the others issue no matching collective."
        if node.if_sharded:
            message = f"Where the parameters are sharded: {message[:1].lower()}{message[1:]}"
        explanation = (
            f"Guard: {guard.describe()}. The ranks in the collective wait there until the timeout of the group, or meet a "
            "later collective of the others: one of equal size mixes values in silence, any other ends in an abort or a hang."
        )
        if node.hidden:
            explanation = f"{node.what}. " + explanation
        related = [Related(guard.span.path, guard.span.line, "guard", guard.describe())]
        related += [Related(c.path, c.line, "call", "called here") for c in node.calls if c != span]
        if span != node.span:
            related.append(Related(node.span.path, node.span.line, "collective", node.text))
        if part.counterpart is not None:
            other = part.counterpart
            related.append(Related(other.span.path, other.span.line, "collective", f"what the other ranks issue: {other.text}"))
        alone = span == node.span and isinstance(node, Collective) and part.counterpart is None and len(node.rank_guards) == 1
        of_rank = RANK in part.taint and guard.ranks() not in ("some ranks", "all ranks")
        fix = Fix("unsafe", self.fix_hint) if alone and guard.via == "if" and of_rank else None
        # The ranks were compared with the option as it is named. Conditions that are not known may ask for it too.
        switched = [g for g in node.guards if g.against_default or isinstance(g.test, Unknown)]
        severity = "warning" if node.if_sharded else None
        return self.finding(
            span, message, explanation, related=related, confidence=_confidence(part), severity=severity, guards=switched, fix=fix
        )

    def _against(self, part: UnmatchedCollective, here: str) -> str:
        other = part.counterpart
        assert other is not None
        if part.difference == "reduce operation":
            what = f"{other.called} with {reduce_op(other)} at line {other.span.line}"
            return f"On some ranks {here} reduces with {reduce_op(part.node)} while the others meet it in {what}."
        if part.difference == "root":
            return f"On some ranks {here} names another root than the {other.called} of the others at line {other.span.line}."
        return f"On some ranks {here} meets the {other.called} at line {other.span.line}, which the others issue in its place."

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where some ranks issued a collective here that others, which had the chance, did not."""
        place = (finding.span.path, finding.span.line, finding.span.end_line)
        here = counts_at(run, [place], [COLLECTIVE])
        if not here:
            return "not-exercised"
        others = [(r.path, r.line) for r in finding.related if r.role == "collective" and r.text.startswith("what the other")]
        elsewhere = {rank for path, line in others for rank in run.ranks_at(path, line)}
        left_out = {rank for by_rank in here for rank, count in by_rank.items() if not count}
        if parted(run, here, [place]) or (elsewhere & left_out and has_diverged(run)):
            return "confirmed"
        return "not-observed"


def _confidence(part: UnmatchedCollective) -> str:
    if RANK in part.taint and (part.guard.ranks() != "some ranks" or part.counterpart is not None):
        return "likely"
    shape = asks_form(part.guard.test)
    return "likely" if (part.taint | part.guard.taint) & {DATA, CLOCK, SIGNAL} and not shape else "possible"
