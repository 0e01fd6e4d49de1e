"""DDP207: ranks bring tensors of different sizes or types to one collective, or lists where they must bring none."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from ddp_audit.compare.run import RAISED, RecordedRun
from ddp_audit.compare.sequence import Signature, agree, signature
from ddp_audit.compare.termination import failed_by_itself
from ddp_audit.events import COLLECTIVE, EXCEPTION, POINT_TO_POINT
from ddp_audit.findings import Finding
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules.collectives._signatures import Mismatch, mismatches
from ddp_audit_rules.facts.parted import at_places


class CollectiveSignatureMismatch(Rule):
    code = "DDP207"
    name = "collective-signature-mismatch"
    level = "error"
    summary = (
        "One collective to which the ranks bring different sizes or element types: by their rank, by the branch that they take, or "
        "because the size is that of this rank's data; a list for gather or scatter on a rank that is not the root; a CPU tensor "
        "on an NCCL group; a scheduler that all ranks step by what a reduce gave to one of them."
    )
    rationale = (
        "The ranks exchange bytes and not tensors. Other sizes end in an abort (gloo), a hang or foreign memory (NCCL); other "
        "types of equal width are read as bits: 0.5 of float64 comes out as 4602678819172646912 in int64. gather and scatter raise "
        "on the ranks that bring a list and are not the root, and the root waits. reduce leaves its result on one rank."
    )
    exceptions = (
        "Sizes and types that are equal or not known, padding, tensors that were reduced to one number, object collectives, "
        "all_to_all with splits, groups that are not the default one."
    )
    trace_evidence = "The sizes or types that the ranks brought differ at this place, or a rank raised here."
    source = "torch 2.13, distributed/distributed_c10d.py; seen in runs with gloo."
    fix_hint = "bring one size and type on all ranks: exchange the lengths, pad to the longest, gather, and cut"
    outcome = "abort 1"
    bad = '''"""Gathers the losses that are above a limit; how many there are differs between the ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8 - 6 * rank, 4)
    loss = (model(x) - 9).pow(2)
    optimizer.zero_grad()
    loss.mean().backward()
    optimizer.step()
loss = loss.detach()
high = loss[loss > 1]
everywhere = [torch.empty_like(high) for _ in range(dist.get_world_size())]
dist.all_gather(everywhere, high)
print(torch.cat(everywhere).numel(), flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("how many there are differs between the ranks", "the others are sent as nothing").replace(
        "high = loss[loss > 1]\n", "high = torch.zeros(8, 1)\nhigh[: len(loss)] = loss * (loss > 1)\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for mismatch in mismatches(context.program):
            if mismatch.node.span not in seen:
                seen.add(mismatch.node.span)
                yield self._finding(mismatch)

    def _finding(self, mismatch: Mismatch) -> Finding:
        node, message = mismatch.node, mismatch.message
        explanation = (
            "The ranks of a collective exchange as many bytes as each believes in, and nobody compares sizes or types: gloo aborts "
            "one rank, NCCL waits or reads foreign memory, and types of equal width are reinterpreted in silence. It does no harm "
            "only where the tensors happen to be alike."
        )
        if "ValueError" in message or "RuntimeError" in message:
            explanation = "torch checks this before it sends anything, so the ranks that raise leave the others in the collective."
        explanation = mismatch.explanation or explanation
        related = [*mismatch.related, *guard_relations(node)]
        return self.finding(node.span, message, explanation, related=related, severity=mismatch.severity, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where ranks brought different sizes or types to one collective here (or where the other branch is), or where
        an error of their own ended some in it."""
        places = [(finding.span.path, finding.span.line, finding.span.end_line)]
        places += [(r.path, r.line, r.line) for r in finding.related if r.text.startswith("what the other ranks issue")]
        brought: dict[tuple[str, int], list[Signature]] = {}
        met: set[int] = set()
        counts: Counter[tuple[int, str]] = Counter()
        for rank, event in at_places(run, places):
            ended = run.ranks[rank]
            if event.kind == EXCEPTION and failed_by_itself(ended):
                return "confirmed"
            if event.kind == COLLECTIVE and event.op not in POINT_TO_POINT:
                if ended.state == RAISED and failed_by_itself(ended) and event is ended.events[-1]:
                    return "confirmed"
                number = counts[rank, event.group] if event.index is None else event.index
                counts[rank, event.group] += 1
                brought.setdefault((event.group, number), []).append(signature(event))
                met.add(rank)
        if any(not agree(one, other) for found in brought.values() for one, other in itertools.combinations(set(found), 2)):
            return "confirmed"
        return "not-observed" if len(met) > 1 else "not-exercised"
