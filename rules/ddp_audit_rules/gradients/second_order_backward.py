"""DDP117: a backward through a gradient of a wrapped model, which gives some of its parameters nothing."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, Node, Program
from ddp_audit.tree.questions import first_of_each_place, trained_by_ddp
from ddp_audit.tree.values import Const, Unknown, Value, behind, operation_of
from ddp_audit_rules.facts.training import passes_at, reducer_gave_up, wrap_behind

_GRAD = "torch.autograd.grad"


class SecondOrderBackward(Rule):
    code = "DDP117"
    name = "second-order-backward"
    level = "warning"
    summary = (
        "A backward of a loss that is made only of torch.autograd.grad(.., create_graph=True) through a DDP model, such as a "
        "gradient penalty by itself."
    )
    rationale = (
        "The reducer waits for a gradient of every parameter. A gradient of the model does not depend on all of them: the bias of "
        "the last layer drops out of it. The bucket of such a parameter is never complete, so nothing of it is reduced, and the "
        "next forward raises an error on all ranks. find_unused_parameters does not help, as the output itself does depend on it."
    )
    exceptions = (
        "A loss that holds the output of the model as well, be it times zero; a gradient without create_graph, which ends there; "
        "a gradient through the inner module; a backward inside no_sync()."
    )
    trace_evidence = "The reducer's error about a reduction that was not finished, in a run that came to this backward."
    source = (
        "Seen in runs with gloo on torch 2.13: after the penalty's own backward the gradients differ between ranks and the next "
        "forward raises; with `0 * output.sum()` in the loss they are equal."
    )
    fix_hint = "put the output into the same loss (`penalty + 0 * output.sum()`), or call backward once for the whole loss"
    outcome = "error all: Expected to have finished reduction"
    bad = '''"""A critic with a gradient penalty, which has a backward of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
critic = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    critic(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    mixed = torch.randn(8, 4, requires_grad=True)
    score = critic(mixed)
    (slope,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    penalty.backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("which has a backward of its own", "whose loss holds the score as well").replace(
        "    penalty.backward()\n", "    (penalty + 0 * score.sum()).backward()\n"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of(Backward)):
            if node.no_sync or not trained_by_ddp(program, node):
                continue
            grad = _only_gradient(node.target)
            wrap = None if grad is None else self._wrap(program, node)
            if grad is not None and wrap is not None:
                yield self._finding(node, wrap)

    def _wrap(self, program: Program, node: Node) -> Node | None:
        found = (wrap_behind(program, forward) for forward in program.forwards_of(node.target))
        return next((wrap for wrap in found if wrap is not None and wrap.style == "ddp"), None)

    def _finding(self, node: Node, wrap: Node) -> Finding:
        message = (
            f"This backward goes only through a gradient of the model of line {wrap.span.line}, so parameters without a part in it "
            "are never reduced."
        )
        explanation = (
            "The last bias of a network is one: no gradient of the output depends on it. The gradients in its bucket stay local, "
            "and the next forward raises on all ranks. It does no harm where every parameter has a part in the gradient."
        )
        related = [Related(wrap.span.path, wrap.span.line, "wrap", wrap.text), *guard_relations(node)]
        confidence = "likely" if node.is_called else "possible"
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by the reducer's error in a run that came to the backward."""
        if not passes_at(run, [Related(finding.span.path, finding.span.line, "backward", "")]):
            return "not-exercised"
        return "confirmed" if reducer_gave_up(run) else "not-observed"


def _only_gradient(loss: Value | None) -> Value | None:
    """The gradient with a graph of its own that a loss is made of, where the output itself is not in the loss."""
    if loss is None:
        return None
    parts = list(behind(loss, _is_gradient))
    gradients = [value for value in parts if _is_gradient(value)]
    others = [value for value in parts if value.deps and not _is_gradient(value)]
    seen = all(not isinstance(value, Unknown) or value.by is not None for value in others)
    if any(operation_of(value) == "forward" for value in others) or not seen:
        return None
    return next((g for g in gradients if g.deps and _has_graph(g)), None)


def _is_gradient(value: Value) -> bool:
    return operation_of(value) == _GRAD


def _has_graph(value: Value) -> bool:
    made = value.by if isinstance(value, Unknown) else None
    kept = None if made is None else made.argument("create_graph")
    return isinstance(kept, Const) and kept.value is True
