"""DDP203: a decision on what only this rank knows skips or leaves what the ranks do together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD, COLLECTIVE, FORWARD, STEP
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Jump, Step
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import RANK
from ddp_audit_rules.collectives._carried import carried
from ddp_audit_rules.collectives._regions import what_of
from ddp_audit_rules.collectives._skips import Skip, skips
from ddp_audit_rules.facts.parted import counts_at, parted


class RankLocalExit(Rule):
    code = "DDP203"
    name = "rank-local-exit"
    level = "error"
    summary = (
        "A break, continue, return or exit (or an `if` around backward or step) that is decided by this rank's own loss, metric, "
        "files, clock, random numbers or rank, and that skips or leaves a collective, a wrapped forward or backward, or the step."
    )
    rationale = (
        "The rank that decides otherwise issues fewer collectives than the others. They wait for it, or pair with its next "
        "ones: without buffers the ranks go on one batch apart in silence until the longer one hangs; a step that one rank "
        "skips makes the parameters differ for good."
    )
    exceptions = (
        "Decisions on reduced or broadcast values, on step counters and options, in code that issues nothing collective, on "
        "the norm of reduced gradients, exits with an error code (the launcher ends the others at once), and handlers of "
        "exceptions (DDP204)."
    )
    trace_evidence = "The ranks' counts of collectives part after this place, or one rank left while others wait."
    source = (
        "Seen in runs with gloo on torch 2.13: skipping a batch on one rank shifts the pairing by one batch in silence and "
        "hangs at the end; skipping backward in a model with buffers hangs; torch/distributed/elastic ends the other workers "
        "when one exits non-zero."
    )
    fix_hint = "let the ranks agree first: all_reduce the flag with MAX and branch on the result"
    of_sequences = True
    outcome = "hang all"
    bad = '''"""Each rank leaves the loop when its own loss is small."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 4) * (1 + 9 * rank)
target = x.sum(1, keepdim=True)
for step in range(8):
    loss = (model(x) - target).pow(2).mean() / (1 + 99 * rank)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done = (loss < 1.0).float()
    if done.item():
        break
dist.barrier()
print("steps", step + 1, flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Each rank leaves the loop when its own loss is small", "The ranks agree before one of them leaves the loop"
    ).replace("    if done.item():\n", "    dist.all_reduce(done, op=dist.ReduceOp.MAX)\n    if done.item():\n")

    def check(self, context: Context) -> Iterable[Finding]:
        found = list(skips(context.program))
        first = {id(n) for n in first_of_each_place(skip.node for skip in found)}
        shown: dict[object, Skip] = {}
        for skip in found:
            if id(skip.node) in first:
                shown.setdefault(skip.guard.span, skip)
        followed = carried(context.program, list(shown.values()))
        for skip in shown.values():
            if id(skip) not in followed:
                yield self._finding(skip, [outer for outer in shown.values() if followed.get(id(outer)) is skip])

    def _finding(self, skip: Skip, after: Sequence[Skip]) -> Finding:
        node, guard, region = skip.node, skip.guard, skip.region
        reason = "its rank" if skip.taint == {RANK} else " and ".join(sorted(skip.taint - {RANK} or skip.taint))
        what = what_of(region, node.span)
        jump = node.what if isinstance(node, Jump) else ""
        condition = guard.text if guard.polarity else f"not ({guard.text})"
        if jump == "exit":
            message = f"A rank ends its process here by its own decision ({condition}: {reason}) while the others go on to {what}."
        elif jump:
            verb = "skips" if region.number > node.number else "leaves the loop of"
            message = f"Each rank decides this {jump} by itself ({condition}: {reason}) and then {verb} {what}."
        else:
            message = (
                f"Each rank decides by itself whether it reaches {what} ({condition}: {reason}); the others wait for one "
                "that does not."
            )
        if isinstance(region, Step):
            explanation = (
                "The others step and this rank does not: nothing hangs, and the parameters differ from then on. The gradients "
                "are reduced, so a value computed from them would be the same on all ranks; the one that decides here is not."
            )
        else:
            explanation = (
                "The ranks' sequences of collectives part: the others wait in theirs, or pair it with what this rank issues "
                "next, one batch late and in silence, until the rank with more iterations hangs at the end. It does no harm "
                "only where the value happens to be the same on all ranks."
            )
        related = [
            Related(guard.span.path, guard.span.line, "guard", guard.describe()),
            Related(region.span.path, region.span.line, region.kind, f"what the other ranks do: {region.text}"),
        ]
        for outer in after:
            asked = outer.guard.text if outer.guard.polarity else f"not ({outer.guard.text})"
            related.append(
                Related(
                    outer.node.span.path, outer.node.span.line, "guard", f"what was set on the way out leads out here too: {asked}"
                )
            )
        related += [Related(c.path, c.line, "call", "called here") for c in node.calls]
        severity = "warning" if jump == "exit" else None
        return self.finding(
            node.span,
            message,
            explanation,
            related=related,
            confidence=skip.confidence,
            severity=severity,
            guards=node.guards,
        )

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the ranks' counts of what they do together differ in a run that reached the region."""
        places = [(r.path, r.line, r.line) for r in finding.related if r.text.startswith("what the other ranks do")]
        counts = counts_at(run, places, (FORWARD, COLLECTIVE, BACKWARD, STEP))
        if not counts:
            return "not-exercised"
        return "confirmed" if parted(run, counts, places) else "not-observed"
