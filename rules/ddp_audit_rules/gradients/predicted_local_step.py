"""DDP118: an optimizer step of the predicted run on gradients that were never reduced, where no other rule says why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddp_audit.compare.faults import GRADIENTS_NOT_REDUCED
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import STEP
from ddp_audit.findings import Finding
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Wrap
from ddp_audit_rules.facts.evidence import faults_at
from ddp_audit_rules.facts.predicted import on_main_line, span_of_line

if TYPE_CHECKING:
    from ddp_audit.explore.proof import LocalStep


class PredictedLocalStep(Rule):
    code = "DDP118"
    name = "predicted-local-step"
    level = "error"
    yields_to = ("gradients-local", "parameters-differ")
    yields_by_place = False
    summary = (
        "An optimizer step that the predicted run takes on gradients which DDP never reduced: the script is interpreted on each "
        "rank, and no all-reduce came between the backward and the step."
    )
    rationale = (
        "Every rank steps with the gradients of its own data. Nothing hangs and nothing is reported; the parameters of the ranks "
        "differ from that step on. The rule has no list of causes, so it also finds a switch of synchronisation that is computed, "
        "passed through calls, or set too late."
    )
    exceptions = (
        "Scripts that send tensors of more than one element themselves, since they may average gradients or parameters; models "
        "with parts that are not known; runs that rest on a call of a library that may send. Where another rule reports local "
        "gradients in the same script, its finding stands alone. Where a condition was open before the step, the finding is "
        "a warning that names it."
    )
    trace_evidence = "A step at this line whose gradients were never reduced; the trace notes it for each step."
    source = (
        "The model of DDP, which was compared with torch 2.13 on random programs, gradients included (benchmarks/agree.py); the "
        "programs of this rule were run with gloo on two ranks."
    )
    fix_hint = "synchronise the micro-batch before the step: its forward must run outside of no_sync()"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""The contexts of two micro-batches stand in a list, the wrong way round: the last one is not reduced."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
contexts = [nullcontext, model.no_sync]
for step in range(3):
    optimizer.zero_grad()
    for enter in contexts:
        with enter():
            (model(torch.randn(8, 4)).pow(2).mean() / 2).backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("the wrong way round: the last one is not reduced", "and the last one is reduced").replace(
        "[nullcontext, model.no_sync]", "[model.no_sync, nullcontext]"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not program.executed or not program.has(Wrap):
            return
        predicted = context.exploration.predicted()
        for step in predicted.steps if predicted is not None else ():
            yield on_main_line(self._finding(context, step), predicted.flips if predicted is not None else ())

    def _finding(self, context: Context, step: LocalStep) -> Finding:
        site = step.event.site
        assert site is not None
        names = f"{', '.join(step.names[:2])}{' and others' if len(step.names) > 2 else ''}"
        ranks = ", ".join(map(str, step.ranks))
        message = f"The predicted run steps here on gradients of {names} that no rank reduced (ranks {ranks})."
        explanation = f"The predicted run takes {step.steps} such steps. The parameters of the ranks differ from the first on."
        if step.rests_on:
            explanation += f" {step.resting}"
        span = span_of_line(context, site.path, site.line)
        level, confidence = ("warning", "likely") if step.rests_on else ("error", "certain")
        return self.finding(span, message, explanation, severity=level, confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by a step at this place that used gradients which were never reduced."""
        steps = [e for _, e in run.events_at(finding.span.path, finding.span.line, finding.span.end_line) if e.kind == STEP]
        if not steps:
            return super().verify(finding, run)
        return "confirmed" if faults_at(run, GRADIENTS_NOT_REDUCED, finding.span) else "not-observed"
