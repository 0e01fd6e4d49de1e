"""DDP109: which parameters get a gradient depends on something that differs between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import DDP_BUCKET, FORWARD
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Guard, Program
from ddp_audit.tree.values import RANDOM, Obj
from ddp_audit_rules.facts.parted import failed_of_its_own
from ddp_audit_rules.facts.training import is_set, reducer_gave_up, wrap_place
from ddp_audit_rules.gradients._conditional_parts import parting
from ddp_audit_rules.gradients._model_parts import frozen, leaves, looked_into, uses


class RankDependentGraph(Rule):
    code = "DDP109"
    name = "rank-dependent-graph"
    level = "warning"
    summary = (
        "A part of a wrapped model that its forward uses only under a condition that can differ between ranks in one step: on the "
        "content of the batch (no targets, a missing modality), a random number of each rank's own, or the rank."
    )
    rationale = (
        "A rank that skips the part has no gradient for it, so its bucket is never full and is not reduced there, while the other "
        "ranks wait in the all-reduce of that bucket. The rank that skipped steps with local gradients and fails in its next "
        "forward, or the ranks' buckets pair up wrongly."
    )
    exceptions = (
        "find_unused_parameters=True, with which absent parameters count as zeros; a part that the other arm uses too, as with "
        "`+ 0 * out.sum()`; conditions that are equal on all ranks: options, training mode, whether an input is given, shapes, "
        "random numbers under one seed, values that were reduced; frozen parts; models whose forward cannot be followed."
    )
    trace_evidence = (
        "A rank that waits in a bucket's all-reduce though no rank failed, or the reducer's error about parameters "
        "without a gradient."
    )
    source = (
        "torch 2.13, reducer.cpp: a bucket is reduced when all its gradients are there; seen in runs with gloo: a part unused on "
        "one rank lets the others wait in backward and fails there in the next forward; find_unused_parameters=True is right."
    )
    fix_hint = "use the part on every rank (add 0.0 * its output's sum), decide alike on all ranks, or set find_unused_parameters"
    outcome = "hang 0; error 1: Expected to have finished reduction"
    bad = '''"""Finds boxes; the head of the boxes is used only where the batch has any, and rank 1 gets one without."""

import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Finder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(4, 1)
        self.box = torch.nn.Linear(4, 2)

    def forward(self, x, has_box):
        loss = (self.score(x).squeeze(1) - has_box).square().mean()
        found = x[has_box > 0]
        if len(found) > 0:
            loss = loss + self.box(found).square().mean()
        return loss


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
model = DDP(Finder())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
batches = torch.utils.data.DataLoader([(torch.randn(4), 1.0 - dist.get_rank()) for _ in range(16)], batch_size=4)
for x, has_box in batches:
    optimizer.zero_grad()
    model(x, has_box).backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace(
        "used only where the batch has any, and rank 1 gets one without", "always used, at least for nothing"
    ).replace(
        "            loss = loss + self.box(found).square().mean()\n",
        "            loss = loss + self.box(found).square().mean()\n        else:\n            loss = loss + 0.0 * "
        "self.box(x).sum()\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for wrap, wrapper, module, inside in looked_into(program):
            tolerant = is_set(wrap, "find_unused_parameters")
            if tolerant or not inside.called:
                continue
            used = uses(program, inside)
            parts: dict[object, tuple[Guard, list[Obj]]] = {}
            for leaf in leaves(program, module):
                touching = used.get(leaf.key, [])
                single = [node for node in touching if not node.listed]
                guard = parting(program, single or touching)
                if guard is not None and not frozen(program, leaf):
                    parts.setdefault(guard.span, (guard, []))[1].append(leaf)
            for guard, skipped in parts.values():
                yield self._finding(program, wrapper, guard, skipped, "likely" if tolerant is False else "possible")

    def _finding(self, program: Program, wrapper: Obj, guard: Guard, skipped: list[Obj], confidence: str) -> Finding:
        names = ", ".join(list(dict.fromkeys(program.modules.name(leaf) for leaf in skipped))[:3])
        reason = " and ".join(sorted(guard.taint)) or RANDOM
        message = (
            f"Whether a rank uses {names} depends on {reason} ({guard.text}), so in one step only some ranks have its gradients."
        )
        explanation = (
            "Ranks that use it wait in the all-reduce of its bucket; a rank that does not never fills that bucket, steps with "
            "local gradients and raises in its next forward. It does not happen where the condition comes out alike on all ranks "
            "in every step, or with find_unused_parameters=True."
        )
        related = wrap_place(wrapper)
        related += [Related(s.made.path, s.made.line, "model", "has parameters") for s in skipped[:2] if s.made is not None]
        return self.finding(guard.span, message, explanation, related=related, guards=(guard,), confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by the reducer's error, or by a rank that waits in a bucket while no rank failed by itself."""
        if not any(e.kind == FORWARD for _, e in run.all_events()):
            return "not-exercised"
        waiting = [one.waiting for one in run.ranks.values() if one.waiting is not None]
        stuck = any(event.origin == DDP_BUCKET for event in waiting) and not any(map(failed_of_its_own, run.ranks.values()))
        return "confirmed" if stuck or reducer_gave_up(run) else "not-observed"
