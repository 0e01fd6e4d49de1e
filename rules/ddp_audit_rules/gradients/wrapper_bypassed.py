"""DDP101: the loss is computed through the inner module, so the wrapper never arms its reducer."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD, FORWARD
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Collective, Forward, Node, Program
from ddp_audit.tree.questions import first_of_each_place, forwards_behind, says
from ddp_audit_rules.facts.evidence import is_at
from ddp_audit_rules.facts.training import is_only_looked_at


class WrapperBypassed(Rule):
    code = "DDP101"
    name = "wrapper-bypassed"
    level = "error"
    summary = (
        "A backward whose loss was computed only through the inner module of a DDP wrapper: by `.module`, by a reference to "
        "the module that was kept from before the wrap, by another method than the wrapper's call, or by its parts in turn."
    )
    rationale = (
        "Only the wrapper's own forward prepares the reducer. Without it the backward reduces nothing, on no rank and without "
        "an error: every rank steps with its own gradients, and the replicas drift apart from the first step on."
    )
    exceptions = (
        "Evaluation, generation and saving through `.module`, a loss that also goes through the wrapper, a wrapped forward "
        "whose output is dropped before (it prepares the next backward), gradients that the program reduces itself, and "
        "methods of the inner module whose result does not reach a loss."
    )
    trace_evidence = "A backward at this place that issued no bucket all-reduce, with the wrapper's synchronisation on."
    source = (
        "torch 2.13, nn/parallel/distributed.py: _post_forward calls reducer.prepare_for_backward; seen in runs with gloo: "
        "after `model.module(x)` and backward the gradients of two ranks differ."
    )
    fix_hint = "call the wrapper: pass what the loss needs through its forward, and keep `.module` for evaluation and saving"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Trains a line; the loss is a method of the inner module, so no gradient is reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.loss(x)

    def loss(self, x):
        return (self.layer(x) - x.sum(1, keepdim=True)).pow(2).mean()


dist.init_process_group("gloo")
model = DDP(Line())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    loss = model.module.loss(torch.randn(8, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "the loss is a method of the inner module, so no gradient is reduced", "the loss comes from the wrapper"
    ).replace("model.module.loss(", "model(")

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for backward in first_of_each_place(program.of(Backward)):
            inner = [n for n in forwards_behind(program, backward, None) if n.object is not None]
            if not inner or any(n.through != "module" for n in inner):
                continue
            if any(_armed(program, backward, n) for n in inner) or _reduced_by_hand(program, backward):
                continue
            if all(n.object is not None and is_only_looked_at(program, backward, n.object) for n in inner):
                continue
            yield self._finding(program, backward, min(inner, key=lambda n: (len(n.calls), n.number)))

    def _finding(self, program: Program, backward: Backward, forward: Forward) -> Finding:
        method = forward.method
        what = f"its method {method}" if method else f"its part {forward.part}" if forward.part else "the inner module"
        message = (
            f"No rank reduces these gradients: the loss comes from {forward.text} (line {forward.span.line}), which calls "
            f"{what} and not the DDP wrapper."
        )
        explanation = (
            "All ranks run on without an error: each one steps with the gradients of its own batch, and their parameters differ "
            "from the first step on. A wrapped forward whose backward has not run yet would arm the reducer; none does here."
        )
        related = [
            Related(forward.span.path, forward.span.line, "forward", "the loss is computed past the wrapper"),
            Related(backward.span.path, backward.span.line, "backward", "reduces nothing"),
        ]
        wrapper = forward.object
        if wrapper is not None and wrapper.made is not None:
            related.append(Related(wrapper.made.path, wrapper.made.line, "wrap", "the DDP wrapper of this module"))
        return self.finding(
            forward.span if method else backward.span, message, explanation, related=related, guards=backward.guards
        )

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by backward passes at this place that issued no bucket all-reduce, where nothing had switched that off."""
        places = [(r.path, r.line) for r in finding.related if r.role == "backward"]
        found: list[object] = []
        for one in run.ranks.values():
            sync = True
            for event in one.events:
                if event.kind == FORWARD:
                    sync = event.detail.get("sync") is not False
                elif event.kind == BACKWARD and sync and any(is_at(event, Span(path, line, 1, line, 1)) for path, line in places):
                    found.append(event.detail.get("buckets"))
        if not found:
            return "not-exercised"
        return "confirmed" if all(buckets == 0 for buckets in found) else "not-observed"


def _armed(program: Program, backward: Backward, forward: Forward) -> bool:
    """Whether a wrapped forward with gradients stands before the backward that no earlier backward has used up."""
    wrapper = forward.object
    consumed: dict[int, int] = {}
    for earlier in program.of(Backward):
        for number in earlier.target.deps if earlier.target is not None else ():
            consumed.setdefault(number, earlier.number)
    for node in program.of(Forward):
        if node.object is None or wrapper is None or node.object.key != wrapper.key or node.through != "wrapper":
            continue
        used_by = consumed.get(node.number)
        if node.grad is not False and (used_by is None or node.number < backward.number < used_by):
            return True
    return False


def _reduced_by_hand(program: Program, backward: Node) -> bool:
    """Whether the program itself reduces gradients after the backward."""
    reducing = (n for n in program.of(Collective) if "reduce" in n.op and n.number > backward.number)
    return any(says(n, "gradient") or says(n.function, "gradient") for n in reducing)
