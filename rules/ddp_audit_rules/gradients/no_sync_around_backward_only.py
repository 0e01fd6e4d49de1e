"""DDP113: the forward runs outside no_sync() and only the backward inside, so everything is reduced all the same."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BACKWARD
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Backward, Node, NoSyncBlock, Program
from ddp_audit.tree.questions import code_within, first_of_each_place, forwards_behind, says


class NoSyncAroundBackwardOnly(Rule):
    code = "DDP113"
    name = "no-sync-around-backward-only"
    level = "warning"
    summary = "A `no_sync()` block that holds a backward while the forward of its loss ran outside of it."
    rationale = (
        "no_sync() acts in the forward, which has prepared the reducer already: the backward reduces all gradients. They are "
        "right, but the communication that the block was to save takes place in every micro-batch."
    )
    exceptions = (
        "Blocks that hold the forward too, or the forward alone (which does switch synchronisation off), and frameworks' own."
    )
    trace_evidence = "A backward inside the block that issued bucket all-reduces."
    source = (
        "torch 2.13, nn/parallel/distributed.py, docstring of no_sync: the forward pass should be included inside the context "
        "manager; seen in runs with gloo: forward outside, backward inside leaves averaged gradients."
    )
    fix_hint = "put the forward inside the no_sync() block as well"
    outcome = "clean; reductions 8"
    bad = '''"""Accumulates two micro-batches; no_sync() holds the backward alone and saves nothing."""

from contextlib import nullcontext

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
        with nullcontext() if micro_step == 1 else model.no_sync():
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("holds the backward alone and saves nothing", "holds forward and backward of the first").replace(
        "        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2\n        with nullcontext() if micro_step == 1 "
        "else model.no_sync():\n",
        "        with nullcontext() if micro_step == 1 else model.no_sync():\n            loss = (model(x) - x.sum(1, "
        "keepdim=True)).pow(2).mean() / 2\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        reported: set[Span] = set()
        for backward in program.of(Backward):
            forwards = forwards_behind(program, backward)
            blocks = [b for b in backward.no_sync if not any(b.span == inner.span for f in forwards for inner in f.no_sync)]
            if forwards and blocks and all(not f.no_sync for f in forwards) and blocks[-1].span not in reported:
                reported.add(blocks[-1].span)
                yield self._finding(blocks[-1].span, backward, forwards[-1])
        for block in first_of_each_place(program.of(NoSyncBlock)):
            if block.span not in reported and says(block.text, "no-sync") and block.target is None:
                for line in _lone_backward(program, block):
                    yield self._unresolved(block, line)

    def _finding(self, block: Span, backward: Node, forward: Node) -> Finding:
        message = (
            f"no_sync() has no effect here: it covers the backward of line {backward.span.line} and not the forward of line "
            f"{forward.span.line}, so all ranks reduce."
        )
        related = [
            Related(forward.span.path, forward.span.line, "forward", "outside no_sync(): its backward is reduced"),
            Related(backward.span.path, backward.span.line, "backward", "issues bucket all-reduces"),
        ]
        together = (backward.span.path, backward.function, backward.calls) == (
            forward.span.path, forward.function, forward.calls,
        )  # fmt: skip
        fix = Fix("unsafe" if together else "display-only", self.fix_hint)
        return self.finding(block, message, _EXPLANATION, related=related, confidence="certain", guards=backward.guards, fix=fix)

    def _unresolved(self, block: Node, line: int) -> Finding:
        message = (
            f"no_sync() has no effect here: it covers the backward of line {line} and not the forward before it, so all ranks "
            "reduce."
        )
        related = [Related(block.span.path, line, "backward", "issues bucket all-reduces")]
        return self.finding(block.span, message, _EXPLANATION, related=related)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by a backward at this place with bucket all-reduces, as long as any other one is there to compare with."""
        places = [(r.path, r.line) for r in finding.related if r.role == "backward"]
        passes = [e for place in places for _, e in run.events_at(*place) if e.kind == BACKWARD]
        if not passes:
            return "not-exercised"
        return "confirmed" if all(e.detail.get("buckets") for e in passes) else "not-observed"


_EXPLANATION = (
    "The gradients are right and nothing hangs: what is lost is the saving. A wrapper reads its switch in the forward; where "
    "backward runs does not matter."
)


def _lone_backward(program: Program, block: Node) -> Iterator[int]:
    """The line of the backward in a with statement at the block's place that holds backward calls and nothing that could "
    "compute a loss."""
    for node in code_within(program, block.span.path, 1, block.span.line):
        if not isinstance(node, (ast.With, ast.AsyncWith)) or not node.lineno <= block.span.line < node.body[0].lineno:
            continue
        calls = [c for s in node.body for c in ast.walk(s) if isinstance(c, ast.Call)]
        backward = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"]
        inside = {id(c) for b in backward for c in ast.walk(b)}
        names = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        assigned = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        used = {n.id for b in backward for n in ast.walk(b) if isinstance(n, ast.Name)}
        if backward and all(id(c) in inside for c in calls) and not assigned & used:
            yield backward[0].lineno
