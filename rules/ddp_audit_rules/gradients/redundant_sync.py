"""DDP119: every micro-batch of an accumulation is reduced where the last one would do."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import STEP
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Node, NoSyncBlock, SyncFlag
from ddp_audit.tree.questions import first_of_each_place, forwards_behind, is_never_off, speaks_of, trained_by_ddp, window_of
from ddp_audit.tree.values import Const, Value
from ddp_audit_rules.facts.training import is_set, passes_at, wrap_behind


class RedundantSync(Rule):
    code = "DDP119"
    name = "redundant-sync"
    level = "info"
    summary = (
        "An accumulation of micro-batches whose backward passes all reduce their gradients, because no forward stands inside "
        "`no_sync()` and nothing switches the reduction off, as where `require_backward_grad_sync` is true on each of them."
    )
    rationale = (
        "DDP reduces what `.grad` holds after each backward. The sums are right, and all but the last reduction are wasted: with a "
        "micro-batches an update the ranks send a times the bytes, and wait for each other a times."
    )
    exceptions = (
        "A forward under `no_sync()`, or a flag that can be off, whatever the condition; windows of one; windows whose length is "
        "not known; communication hooks, frameworks and FSDP, which decide for themselves; `static_graph=True`, which does not go "
        "together with no_sync()."
    )
    trace_evidence = "Every backward at this place reduced its buckets, and there were more of them than optimizer steps."
    source = (
        "torch 2.13, nn/parallel/distributed.py: with require_backward_grad_sync each backward is prepared for reduction; seen in "
        "runs with gloo: 2 micro-batches in each of 4 updates issue 8 all-reduces, and 4 with no_sync() around the first."
    )
    fix_hint = "run forward and backward of all micro-batches but the last inside model.no_sync()"
    outcome = "clean; reductions 8"
    bad = '''"""Accumulates two micro-batches and reduces the gradients of both."""

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
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace("reduces the gradients of both", "reduces their gradients once, with the second")
        .replace("import torch\nimport", "from contextlib import nullcontext\n\nimport torch\nimport")
        .replace(
            "        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2\n        loss.backward()\n",
            "        with nullcontext() if micro_step == 1 else model.no_sync():\n            loss = (model(x) - x.sum(1, "
            "keepdim=True)).pow(2).mean() / 2\n            loss.backward()\n",
        )
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for backward in first_of_each_place(program.of(Backward)):
            forwards = forwards_behind(program, backward)
            if not forwards or not trained_by_ddp(program, backward):
                continue
            wrap = wrap_behind(program, forwards[0])
            if (
                is_set(wrap, "static_graph") is not False
                or speaks_of(program, "register_comm_hook")
                or program.has(NoSyncBlock)
                or not all(is_never_off(program, flag) for flag in program.of(SyncFlag))
            ):
                continue
            window = window_of(program, backward)
            if window is not None:
                yield self._finding(backward, forwards[0], window)

    def _finding(self, backward: Node, forward: Node, window: Value) -> Finding:
        count = window.value if isinstance(window, Const) else None
        name = f"`{window.text}`" if window.text.isidentifier() or count is None else str(count)
        times = f"{name} = {count}" if count is not None and name != str(count) else name
        message = (
            f"Each of the {name} micro-batches of an update is reduced here, where only the last has to be: {times} times the "
            "traffic."
        )
        explanation = (
            "All ranks do the same, and the gradients are right. A reduction that is left out saves its traffic and the wait for "
            "the slowest rank; the last micro-batch reduces what all of them have added up."
        )
        related = [Related(forward.span.path, forward.span.line, "forward", "prepares each backward for reduction")]
        return self.finding(backward.span, message, explanation, related=related, guards=backward.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by backward passes that all reduced and outnumber the steps."""
        passes = passes_at(run, [Related(finding.span.path, finding.span.line, "backward", "")])
        steps = sum(event.kind == STEP for _, event in run.all_events())
        if not passes:
            return "not-covered"
        if not all(passes):
            return "not-observed"
        return "confirmed" if len(passes) > steps > 0 else "not-exercised"
