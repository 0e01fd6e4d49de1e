"""DDP114: require_backward_grad_sync is toggled by hand before the forward: right today, but no interface."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Forward, Node, Program, SyncFlag
from ddp_audit.tree.questions import arms_reducer_by_hand, carried_flags, first_of_each_place, is_never_off
from ddp_audit_rules.gradients._sync_by_rank import parted_passes
from ddp_audit_rules.gradients._windows import flags_before_unreduced_steps, wrongly_late_flags


class PrivateSyncSwitch(Rule):
    code = "DDP114"
    name = "private-sync-switch"
    level = "info"
    summary = (
        "An assignment of the wrapper's attribute `require_backward_grad_sync` before the forward that it governs; also one after "
        "a forward that is one micro-batch ahead, so that the next forward reads the right value."
    )
    rationale = (
        "It does today what `no_sync()` does, and gradients are right on all ranks. It is an undocumented attribute, it does "
        "not restore itself after an exception, and it is silently wrong as soon as somebody moves it after the forward."
    )
    exceptions = (
        "An assignment between a forward and its backward that is late (DDP112), one that lets a step use unreduced gradients "
        "(DDP105), one that never switches anything off (DDP119) or differs between ranks (DDP120), and code that prepares the "
        "reducer by hand at the same place."
    )
    trace_evidence = "Nothing to confirm: the order in the source is what is reported."
    source = "torch 2.13, nn/parallel/distributed.py: no_sync sets the same attribute and restores it in a finally block."
    fix_hint = "use model.no_sync() around forward and backward of the micro-batches that are not to be reduced"
    outcome = "clean; reductions 4"
    bad = '''"""Accumulates two micro-batches with the wrapper's attribute, set before the forward: right, but private."""

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
        model.require_backward_grad_sync = micro_step == 1
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace("with the wrapper's attribute, set before the forward: right, but private", "with no_sync() around the first")
        .replace("import torch\nimport", "from contextlib import nullcontext\n\nimport torch\nimport")
        .replace("        model.require_backward_grad_sync = micro_step == 1\n", "")
        .replace(
            "        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2\n        loss.backward()\n",
            "        with nullcontext() if micro_step == 1 else model.no_sync():\n            loss = (model(x) - x.sum(1, "
            "keepdim=True)).pow(2).mean() / 2\n            loss.backward()\n",
        )
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        late = {flag.span for flag, _, _ in wrongly_late_flags(program)}
        carried = {flag.span: forward for flag, forward in carried_flags(program)}
        wrong = {*flags_before_unreduced_steps(program), *(n.span for parted in parted_passes(program) for n in parted.flags)}
        for flag in first_of_each_place(program.of(SyncFlag)):
            if flag.span in late or flag.span in wrong or is_never_off(program, flag) or arms_reducer_by_hand(program, flag):
                continue
            if flag.span in carried:
                yield self._for_the_next(flag, carried[flag.span])
            else:
                yield self._before(program, flag)

    def _before(self, program: Program, flag: Node) -> Finding:
        wrapper = flag.object
        after = [
            n
            for n in program.of(Forward)
            if n.number > flag.number and n.grad is not False and n.through == "wrapper"
            and (wrapper is None or (n.object is not None and n.object.key == wrapper.key))
        ]  # fmt: skip
        where = f" of line {after[0].span.line}" if after and after[0].span.path == flag.span.path else ""
        message = (
            f"require_backward_grad_sync is set by hand before the forward{where}: it acts as no_sync() does, but it is not a "
            "stable interface."
        )
        explanation = (
            "Where it stands it acts as no_sync() does. It stays right only as long as the assignment comes before the "
            "forward: after it, it would act one micro-batch late on every rank, without an error and without a hang."
        )
        related = [Related(n.span.path, n.span.line, "forward", "reads the flag") for n in after[:1]]
        return self.finding(flag.span, message, explanation, related=related, confidence="certain" if after else "likely")

    def _for_the_next(self, flag: Node, forward: Node) -> Finding:
        message = (
            f"require_backward_grad_sync is set by hand after the forward of line {forward.span.line} for the next pass; it is "
            "not a stable interface."
        )
        explanation = (
            "The wrapper reads the attribute in its forward. An assignment after it decides about the next micro-batch, and has to "
            "be one micro-batch ahead of the step. no_sync() around the micro-batch itself says the same without that."
        )
        related = [Related(forward.span.path, forward.span.line, "forward", "reads what the pass before has set")]
        return self.finding(flag.span, message, explanation, related=related)
