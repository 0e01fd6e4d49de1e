"""DDP104: requires_grad of parameters is set after the wrap, where the reducer has its list already."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node, Program, RequiresGrad
from ddp_audit.tree.values import Const, Obj
from ddp_audit_rules.facts.training import replicas_drift, trained_after, wrap_place, wrapped_by_then
from ddp_audit_rules.gradients._switched import frozen_before, switched_off, switched_on


class RequiresGradChangedAfterWrap(Rule):
    code = "DDP104"
    name = "requires-grad-changed-after-wrap"
    level = "error"
    summary = (
        "requires_grad of parameters inside a DDP wrapper that is changed after the wrap and before more training: switched on "
        "where it was off at the wrap, or switched off for a part of the model without find_unused_parameters."
    )
    rationale = (
        "The reducer takes the parameters that require a gradient when the wrapper is made, and no others later. One that is "
        "switched on afterwards is trained by each rank on its own, in silence. One that is switched off leaves its bucket "
        "waiting: the gradients in that bucket stay local in this step, and the next forward raises on every rank."
    )
    exceptions = (
        "Changes before the wrap, or with a new wrap after them; switching off with find_unused_parameters or static_graph; "
        "the whole wrapped model switched off, as a GAN does with the other network (no hook fires then, and nothing waits); "
        "switching on what was on at the wrap; models that are not trained afterwards."
    )
    trace_evidence = "Parameters that differ between ranks after this line, or the reducer's error about a prior reduction."
    source = (
        "torch 2.13, nn/parallel/distributed.py: the constructor collects parameters with requires_grad; seen in runs with gloo: "
        "unfrozen after the wrap is never reduced; frozen after the wrap raises at the next forward, and does not with "
        "find_unused_parameters=True."
    )
    fix_hint = "change requires_grad before the wrap and wrap again at each phase, or keep it on and set the learning rate to 0"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Fine-tunes a head, then the body too: the body was frozen at the wrap, so its gradients are never reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Sequential()
net.body, net.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
net.body.requires_grad_(False)
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for epoch in range(3):
    if epoch == 1:
        net.body.requires_grad_(True)
    for step in range(2):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("the body was frozen at the wrap, so its gradients are never reduced", "wrapped again").replace(
        "        net.body.requires_grad_(True)\n", "        net.body.requires_grad_(True)\n        model = DDP(net)\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        reported: set[Span] = set()
        for node in program.of(RequiresGrad):
            value = node.value
            if node.object is None or not isinstance(value, Const) or not isinstance(value.value, bool):
                continue
            found = wrapped_by_then(program, node)
            if found is None:
                continue
            span = _place(program, node)
            confidence = (switched_on if value.value else switched_off)(program, node, *found)
            if confidence and span not in reported and trained_after(program, found[0], node) is not None:
                reported.add(span)
                yield self._finding(program, node, span, found[0], value.value, confidence)

    def _finding(self, program: Program, node: RequiresGrad, span: Span, wrapper: Obj, on: bool, confidence: str) -> Finding:
        wrapped_at = wrapper.made.line if wrapper.made is not None else 0
        if on:
            message = (
                f"requires_grad is switched on after the wrap of line {wrapped_at}, so DDP does not reduce these gradients: every "
                "rank trains on its own."
            )
            explanation = (
                "The reducer has no hook on them: nothing fails on any rank, the rest of the model is reduced, and these "
                "parameters differ between the ranks from the first step on. It would not matter if they had required a gradient "
                "when the wrapper was made, or if the model were wrapped again after this line."
            )
        else:
            message = (
                f"requires_grad is switched off for a part of the model after the wrap of line {wrapped_at}: every rank raises in "
                "the next forward but one."
            )
            explanation = (
                "The bucket that holds these parameters is not reduced: in this step its other gradients stay local, the "
                "optimizer uses them, and the following forward raises 'Expected to have finished reduction in the prior "
                "iteration'. With find_unused_parameters=True it would be harmless."
            )
        related = wrap_place(wrapper)
        frozen = frozen_before(program, node, wrapper) if on else []
        related += [Related(n.span.path, n.span.line, "frozen", "switched off before the wrap") for n in frozen[:1]]
        related += [r for r in guard_relations(node) if r.role == "call" and r.line != span.line]
        return self.finding(span, message, explanation, related=related, guards=node.guards, confidence=confidence)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by parameters that differ, local gradients, or the reducer's error."""
        return replicas_drift(run, [r for r in finding.related if r.role == "wrap"])


def _place(program: Program, node: Node) -> Span:
    """Where the finding stands: the call that leads to it where the statement serves several callers."""
    shared = any(other is not node and other.span == node.span and other.calls != node.calls for other in program.of(type(node)))
    return node.calls[-1] if shared and node.calls else node.span
