"""DDP120: whether a micro-batch is reduced differs between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward
from ddp_audit.tree.questions import forwards_behind
from ddp_audit_rules.facts.parted import replicas
from ddp_audit_rules.facts.predicted import span_of_line
from ddp_audit_rules.gradients._sync_by_rank import Parted, parted_passes


class RankDependentSync(Rule):
    code = "DDP120"
    name = "rank-dependent-sync"
    level = "error"
    summary = (
        "A `no_sync()` block or an assignment of `require_backward_grad_sync` that is on for some ranks and off for others in the "
        "same pass, because the rank or this rank's own data decides."
    )
    rationale = (
        "Only the ranks that synchronise issue the all-reduces of that backward. Each of these pairs with the next one of the "
        "other ranks, which belongs to another micro-batch: gradients that do not belong together are averaged, or sizes differ. "
        "The ranks that issue more of them wait forever in the end."
    )
    exceptions = (
        "Conditions that are equal on all ranks in each pass: positions, options, lengths, values that were reduced; ranks of "
        "different process groups that each agree within themselves; conditions that cannot be computed; an assignment after "
        "the forward, which is for another pass; a switch with the same answer on all ranks at every position that was tried."
    )
    trace_evidence = "Forwards of the same pass that were synchronised on one rank and not on another."
    source = (
        "torch 2.13, nn/parallel/distributed.py: the forward prepares the reducer only where require_backward_grad_sync is true; "
        "seen in runs with gloo on two ranks: one reduces twice an update, the other once, and the first waits at the end."
    )
    fix_hint = "let all ranks decide alike which micro-batches are reduced"
    outcome = "hang 1; gradients-local"
    bad = '''"""Rank 0 reduces the second of two micro-batches, rank 1 reduces both, and waits for rank 0 in the end."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    for micro_step in range(2):
        x = torch.randn(8, 4)
        model.require_backward_grad_sync = micro_step == 1 or dist.get_rank() > 0
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 0 reduces the second of two micro-batches, rank 1 reduces both, and waits for rank 0 in the end.",
        "Every rank reduces the second of two micro-batches.",
    ).replace(" or dist.get_rank() > 0", "")

    def check(self, context: Context) -> Iterable[Finding]:
        for parted in parted_passes(context.program):
            yield self._finding(context, parted)

    def _finding(self, context: Context, parted: Parted) -> Finding:
        forward = parted.forward
        where = f"the forward of line {forward.span.line}"
        if parted.others:
            does, does_not = _verb(parted.others, "reduce"), _verb(parted.off, "do")
            message = (
                f"{_ranks(parted.others)} {does} the gradients of {where} and {_ranks(parted.off).lower()} {does_not} not, in the "
                "same pass."
            )
        else:
            message = f"Whether the gradients of {where} are reduced depends on {parted.reason}, so ranks can differ in one pass."
        explanation = (
            "The ranks that reduce issue all-reduces that the others do not. Each pairs with the next all-reduce of the other "
            "ranks, which belongs to another micro-batch, so the averages are wrong; where the others have left, or issue "
            "something else, the ranks wait forever or the run is aborted."
        )
        related = guard_relations(parted.place)
        related.append(Related(forward.span.path, forward.span.line, "forward", "decides whether its backward is reduced"))
        behind = [b for b in context.program.of(Backward) if forward in forwards_behind(context.program, b)]
        related += [Related(b.span.path, b.span.line, "backward", "reduced on some ranks only") for b in behind[:1]]
        level = "error" if parted.others else "warning"
        span = span_of_line(context, parted.place.span.path, parted.line)
        return self.finding(span, message, explanation, related=related, guards=parted.place.guards, severity=level)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the same forward of two replicas was synchronised on one and not on the other."""
        passes: dict[int, list[bool]] = {}
        for place in finding.related:
            for rank, event in run.events_at(place.path, place.line) if place.role == "forward" else ():
                if event.kind == FORWARD and event.detail.get("grad") and "sync" in event.detail:
                    passes.setdefault(rank, []).append(bool(event.detail["sync"]))
        compared = False
        for ranks in replicas(run):
            for both in zip(*(passes[rank] for rank in ranks if rank in passes), strict=False):
                compared = compared or len(both) > 1
                if len(set(both)) > 1:
                    return "confirmed"
        return "not-observed" if compared else "not-exercised"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _verb(ranks: tuple[int, ...], verb: str) -> str:
    return verb if len(ranks) > 1 else {"do": "does"}.get(verb, f"{verb}s")
