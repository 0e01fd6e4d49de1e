"""DDP112: require_backward_grad_sync is set between a forward and its backward, where nothing reads it."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.faults import GRADIENTS_NOT_REDUCED
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Node, Program
from ddp_audit.tree.questions import arms_reducer_by_hand, first_of_each_place
from ddp_audit_rules.facts.evidence import has_fault
from ddp_audit_rules.gradients._windows import wrongly_late_flags


class SyncFlagAfterForward(Rule):
    code = "DDP112"
    name = "sync-flag-after-forward"
    level = "error"
    summary = "An assignment of `require_backward_grad_sync` after the forward and before the backward that it is meant to govern."
    rationale = (
        "The wrapper reads the attribute in its forward. Set afterwards it acts on the next micro-batch, one too late: with the "
        "usual condition the micro-batch that steps is not reduced, and every rank steps with its own gradients, without an error."
    )
    exceptions = (
        "An assignment before the forward (DDP114), one where the reducer is prepared by hand at the same place (as libraries "
        "that build on DDP do), and FSDP2, which reads its own switch in backward."
    )
    trace_evidence = "Steps whose gradients were never reduced, or forwards whose recorded flag is that of the micro-batch before."
    source = (
        "torch 2.13, nn/parallel/distributed.py: require_backward_grad_sync is read in _pre_forward and _post_forward and "
        "nowhere in backward; seen in runs with gloo: flag False, forward, flag True, backward leaves local gradients."
    )
    fix_hint = "decide before the forward: run forward and backward of an unsynced micro-batch inside model.no_sync()"
    outcome = "gradients-local; parameters-differ"
    bad = '''"""Accumulates two micro-batches; the switch is set after the forward and comes one micro-batch late."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
window = 2
for step in range(8):
    x = torch.randn(8, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / window
    model.require_backward_grad_sync = (step + 1) % window == 0
    loss.backward()
    if (step + 1) % window == 0:
        optimizer.step()
        optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    _FLAG = "    model.require_backward_grad_sync = (step + 1) % window == 0\n"
    good = (
        bad.replace("set after the forward and comes one micro-batch late", "set before the forward that reads it")
        .replace(_FLAG, "")
        .replace("    x = torch.randn(8, 4)\n", _FLAG + "    x = torch.randn(8, 4)\n")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        late = wrongly_late_flags(program)
        for flag in first_of_each_place(flag for flag, _, _ in late):
            if arms_reducer_by_hand(program, flag):
                continue
            forward, backward = next((f, b) for node, f, b in late if node is flag)
            yield self._finding(program, flag, forward, backward)

    def _finding(self, program: Program, flag: Node, forward: Node, backward: Node) -> Finding:
        message = (
            f"require_backward_grad_sync is set after the forward of line {forward.span.line}, which reads it: it takes effect "
            "one micro-batch late."
        )
        explanation = (
            "The wrapper prepares its reducer in the forward, by the value that the flag had then; backward does not look at "
            "it. On every rank the flag comes one micro-batch late: where the stepping micro-batch is the one to be reduced, "
            "it is not, and the ranks' parameters differ from then on. Nothing hangs, because all ranks are late alike."
        )
        related = [
            Related(forward.span.path, forward.span.line, "forward", "the wrapper reads the flag here"),
            Related(backward.span.path, backward.span.line, "backward", "this backward follows what the forward read"),
        ]
        together = (flag.span.path, flag.function, flag.calls) == (forward.span.path, forward.function, forward.calls)
        fix = Fix("unsafe" if together else "display-only", self.fix_hint)
        return self.finding(flag.span, message, explanation, related=related, guards=flag.guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by a step whose gradients were never reduced while the forward was seen."""
        forwards = [
            e for r in finding.related if r.role == "forward" for _, e in run.events_at(r.path, r.line) if e.kind == FORWARD
        ]
        if not forwards:
            return "not-exercised"
        return "confirmed" if has_fault(run, GRADIENTS_NOT_REDUCED) else "not-observed"
