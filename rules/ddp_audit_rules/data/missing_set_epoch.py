"""DDP302: the sampler does not get the epoch, so every epoch has the same order."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAMPLER
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node, SamplerMade
from ddp_audit.tree.questions import Pass, endless_passes, samplers_of, shuffles, training_passes, trains
from ddp_audit.tree.values import Obj, constant
from ddp_audit_rules.data._set_epoch import Untold, has_order_of_torch, untold


class MissingSetEpoch(Rule):
    code = "DDP302"
    name = "missing-set-epoch"
    level = "warning"
    summary = (
        "A DistributedSampler that shuffles, under a loop over epochs, whose set_epoch is never called, is called outside that "
        "loop or with a constant, or is called with the epoch after its batches were taken, or after workers began to fetch them."
    )
    rationale = (
        "The sampler shuffles with seed + epoch and knows the epoch from set_epoch alone. Without it every epoch repeats "
        "the order of the first, on all ranks: the same batches in the same sequence, and each rank never sees the "
        "others' part. Nothing fails; the model learns from less variety than it should."
    )
    exceptions = (
        "set_epoch on the sampler, on the loader's sampler, through a method or another file; a call on an object that could not "
        "be followed; shuffle=False; loops without a backward (validation, one pass); a sampler that is created inside the loop; "
        "batches taken by next(); Accelerate, Lightning and the Trainer of transformers, which call it themselves."
    )
    trace_evidence = "A sampler that shuffles begins two passes with the same epoch on one rank."
    source = (
        "torch 2.13, utils/data/distributed.py: the generator is seeded with seed + epoch in __iter__. Seen in runs: without "
        "set_epoch the order of all epochs is equal; changed after iter() it acts one epoch late."
    )
    fix_hint = "call `sampler.set_epoch(epoch)` at the start of each epoch, before the loop over the loader"
    outcome = "same-order"
    bad = '''"""Fits a line for three epochs, each in the same order."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
try:
    torch.manual_seed(1)
    x = torch.arange(64.0).reshape(16, 4) / 64
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        first = None
        for inputs, targets in loader:
            first = inputs if first is None else first
            (model(inputs) - targets).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"rank {dist.get_rank()} epoch {epoch} began with {first[:, 0].mul(64).int().tolist()}", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("each in the same order", "each in an order of its own").replace(
        "        first = None\n", "        sampler.set_epoch(epoch)\n        first = None\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.owns_epoch:
            return
        loops = training_passes(program) + (endless_passes(program) if trains(program) else [])
        passes = [one for one in loops if one.made is not None and one.around and not one.taken]
        seen: set[object] = set()
        for sampler in program.of(SamplerMade):
            made = sampler.object
            if (
                made is None
                or sampler.span in seen
                or sampler.loops
                or shuffles(sampler) is not True
                or not has_order_of_torch(sampler)
            ):
                continue
            for one in passes:
                assert one.made is not None
                if constant(one.around[-1].count) == 1 or one.around[-1].kind == "comprehension":
                    continue
                if any(isinstance(s, Obj) and s.key == made.key for s in samplers_of(one.made)):
                    found = untold(program, sampler, one)
                    if found is not None:
                        seen.add(sampler.span)
                        yield self._finding(sampler, one, found)
                        break

    def _finding(self, sampler: Node, one: Pass, found: Untold) -> Finding:
        epochs = one.around[-1]
        explanation = (
            "DistributedSampler shuffles with the generator seed + epoch, and its epoch stays 0 until set_epoch changes "
            "it; torch.manual_seed has no part in it. The ranks stay in step, so nothing hangs. Each rank also keeps the "
            "same share of the data for the whole run."
        )
        related = [
            Related(epochs.span.path, epochs.span.line, "loop", "the loop over epochs"),
            Related(one.iterate.span.path, one.iterate.span.line, "batches", "the loop over the loader of this sampler"),
        ]
        related += [Related(n.span.path, n.span.line, n.kind, n.text) for n in found.calls]
        related += guard_relations(sampler)
        confidence = "likely" if found.sure else "possible"
        return self.finding(sampler.span, found.message, explanation, related=related, confidence=confidence, fix=found.fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a shuffling sampler began all passes of the loop with one epoch; not-observed where each had its own."""
        places = [(r.path, r.line) for r in finding.related if r.role == "batches"]
        passes: dict[int, list[object]] = {}
        for path, line in places:
            for rank, event in run.events_at(path, line):
                if event.kind == SAMPLER and event.detail.get("action") == "iter" and event.detail.get("shuffle"):
                    passes.setdefault(rank, []).append(event.detail.get("epoch"))
        several = [found for found in passes.values() if len(found) > 1]
        if not several:
            return "not-exercised"
        # Two loaders that come by one line of a helper have epochs of their own: 0, 0, 1, 1, ..
        return "confirmed" if any(len(set(found)) == 1 for found in several) else "not-observed"
