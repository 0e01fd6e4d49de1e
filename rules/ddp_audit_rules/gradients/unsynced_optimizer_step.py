"""DDP105: an optimizer step that follows micro-batches that were not reduced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddp_audit.compare.faults import GRADIENTS_NOT_REDUCED
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import STEP
from ddp_audit.findings import Finding, Option, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Collective, Node, Program, Step
from ddp_audit.tree.questions import first_of_each_place, late_flags, names_of_loops, opened
from ddp_audit.tree.values import leaves
from ddp_audit_rules.facts.evidence import faults_at
from ddp_audit_rules.gradients._gradients import averages_parameters, is_of_gradients
from ddp_audit_rules.gradients._windows import Pass, contradiction, flipped, is_surely_reduced, never, passes_before


class UnsyncedOptimizerStep(Rule):
    code = "DDP105"
    name = "unsynced-optimizer-step"
    level = "error"
    summary = (
        "An optimizer step that can be taken after a micro-batch whose gradients were not reduced: the condition of no_sync() "
        "(or of require_backward_grad_sync) and the condition of the step do not agree at some position of the loop."
    )
    rationale = (
        "Every rank steps with the gradients that it accumulated by itself. Nothing hangs and nothing is reported; the "
        "parameters of the ranks differ from that step on. The usual case is the last, incomplete window of an epoch."
    )
    exceptions = (
        "Conditions that agree at every position that was tried, also where only the forward stands inside no_sync() and a later "
        "micro-batch is reduced before the step; conditions that cannot be computed; programs that all-reduce gradients, or "
        "average the parameters themselves after the step, as local SGD does; "
        "frameworks that step and reduce by themselves."
    )
    trace_evidence = (
        "A step at this place whose gradients were never reduced (the trace notes it for each step), or parameters that differ."
    )
    source = (
        "torch 2.13, nn/parallel/distributed.py: a forward inside no_sync() does not prepare the reducer; seen in runs with "
        "gloo: a step on the last batch of an epoch inside no_sync() makes the parameters of two ranks differ."
    )
    fix_hint = "compute one boolean, `sync = (i + 1) % n == 0 or i + 1 == len(loader)`, and use it for no_sync() and for the step"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Accumulates windows of 4 of 6 batches; the step on the last batch uses gradients that were never reduced."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
batches = [torch.randn(8, 4) for _ in range(6)]
window = 4
for i, x in enumerate(batches):
    full = (i + 1) % window == 0
    with nullcontext() if full else model.no_sync():
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / window
        loss.backward()
    if full or i + 1 == len(batches):
        optimizer.step()
        optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace(
            "the step on the last batch uses gradients that were never reduced", "the last batch is reduced like a full window"
        )
        .replace("full = (i + 1) % window == 0\n", "full = (i + 1) % window == 0 or i + 1 == len(batches)\n")
        .replace("if full or i + 1 == len(batches):", "if full:")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if any(map(is_of_gradients, program.of(Collective))):
            return
        late = {(forward.number, backward.number) for _, forward, backward in late_flags(program)}
        for step in first_of_each_place(program.of(Step)):
            before = passes_before(program, step)
            if not before or (
                any((f.number, p.backward.number) in late for p in before for f, _ in p.forwards)
                and not is_surely_reduced(program, step, before)
            ):
                continue
            if not any(found for p in before for _, found in p.forwards):
                continue
            if all(any(s.test is None for s in found) for p in before for _, found in p.forwards):
                if never(step):
                    continue
                supposed: dict[str, Any] | None = {}
            else:
                supposed = contradiction(program, step, before)
            if supposed is not None and not averages_parameters(context, step):
                yield self._finding(program, step, before, supposed)

    def _finding(self, program: Program, step: Node, before: list[Pass], supposed: dict[str, Any]) -> Finding:
        forward, found = next((f, s) for p in reversed(before) for f, s in p.forwards if s)
        switch = next((s for s in found), None)
        names = names_of_loops(program, step, supposed)
        case = ", ".join(
            f"{names.get(name, name.removeprefix('option '))} = {value}"
            for name, value in sorted(supposed.items(), key=lambda pair: not pair[0].startswith("loop:"))
        )
        tests = [s.test for p in before for _, found in p.forwards for s in found if s.test is not None]
        ranks = " on 2 ranks" if case and any("world_size" in leaves(opened(test)) for test in tests) else ""
        where = f" (for instance with {case}{ranks})" if case else ""
        message = (
            f"This step can use gradients that no rank reduced{where}: the forward of line {forward.span.line} runs with "
            "synchronisation off."
        )
        explanation = (
            "Each rank then steps with what it accumulated by itself, so the parameters of the ranks differ from this step "
            "on, without an error and without a hang; a later all-reduce averages gradients, never parameters."
        )
        related = [Related(forward.span.path, forward.span.line, "forward", "decides whether its backward is reduced")]
        if switch is not None:
            related.append(Related(forward.span.path, switch.line, "sync", switch.text))
        related += [Related(g.span.path, g.span.line, "guard", g.text) for g in step.guards[-1:] if g.via != "early-exit"]
        return self.finding(step.span, message, explanation, related=related, guards=step.guards, option=_option(program, supposed))

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by a step at this place that used gradients which were never reduced."""
        steps = [e for _, e in run.events_at(finding.span.path, finding.span.line, finding.span.end_line) if e.kind == STEP]
        if not steps:
            return "not-exercised"
        return "confirmed" if faults_at(run, GRADIENTS_NOT_REDUCED, finding.span) else "not-observed"


def _option(program: Program, supposed: dict[str, Any]) -> Option | None:
    """The one number that has to be set for the step to go wrong, where the default of more than one does nothing wrong."""
    names = flipped(program, supposed)
    name = names[0].removeprefix("option ") if len(names) == 1 else ""
    default = program.config[name].value if name in program.config else None
    return Option(name, default, supposed[names[0]]) if type(default) is int and default > 1 else None
