"""DDP107: re-entrant activation checkpointing that lets a parameter's hook fire twice."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Checkpoint, Node, Wrap
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import Const, Obj
from ddp_audit_rules.facts.training import is_set, reducer_gave_up, replicas_drift, wrap_place
from ddp_audit_rules.gradients._model_parts import listed, looked_into, recomputed
from ddp_audit_rules.gradients._reentrant import first_unsynced, is_reentrant, used_again


class ReentrantCheckpoint(Rule):
    code = "DDP107"
    name = "reentrant-checkpoint"
    level = "warning"
    summary = (
        "torch.utils.checkpoint in its re-entrant form (the default) inside a wrapped model, over a layer that the same forward "
        "uses again, or in a wrapper with find_unused_parameters=True; and a wrapper with static_graph=True whose first "
        "backward runs under no_sync()."
    )
    rationale = (
        "Each re-entrant checkpoint runs a backward of its own inside the backward, so the hook of a layer that is used twice "
        "fires twice: the reducer raises 'Expected to mark a variable ready only once', or takes the first gradient for the whole "
        "and leaves the rest local. With find_unused_parameters=True the search sees the recomputed parameters as unused and marks "
        "them ready before their gradients come."
    )
    exceptions = (
        "use_reentrant=False; a layer that is checkpointed once and not used otherwise; static_graph=True; layers of a ModuleList, "
        "one after the other; a checkpoint in one arm of a condition and the plain call in the other."
    )
    trace_evidence = "The reducer's error about a variable that is ready twice, or gradients that differ."
    source = (
        "torch 2.13, utils/checkpoint.py: use_reentrant=None means True, with a warning; seen in runs with gloo: one block twice "
        "raises, a block once and then plain raises, use_reentrant=False and static_graph=True are right."
    )
    fix_hint = "pass use_reentrant=False"
    outcome = "error all: Expected to mark a variable ready only once"
    bad = '''"""Applies one block twice, each time under a re-entrant checkpoint."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.block = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=True)
        return self.last(x)


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(3):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("each time under a re-entrant checkpoint", "each time under a checkpoint that is not re-entrant").replace(
        "use_reentrant=True", "use_reentrant=False"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for wrap in first_of_each_place(program.of(Wrap)):
            forward = first_unsynced(program, wrap) if is_set(wrap, "static_graph") else None
            if forward is not None:
                yield self._static(wrap, forward)
        reported: set[Span] = set()
        for wrap, wrapper, _, inside in looked_into(program):
            tolerant, static = is_set(wrap, "find_unused_parameters"), is_set(wrap, "static_graph")
            if static:
                continue
            shared = listed(program)
            nodes = [n for n in inside.nodes if isinstance(n, Checkpoint) and is_reentrant(n)]
            for node in nodes:
                touched = recomputed(program, node)
                again = used_again(program, inside, nodes, node, touched - shared)
                if node.span in reported or not (again is not None or (tolerant and touched)):
                    continue
                reported.add(node.span)
                yield self._finding(wrapper, node, again, "likely" if static is False else "possible")

    def _static(self, wrap: Node, forward: Node) -> Finding:
        message = (
            "With static_graph=True the first backward must be a synchronised one, and this forward, the first of all, runs "
            "with synchronisation off: every rank raises an internal assert of the reducer in its backward."
        )
        explanation = (
            "The reducer learns the graph in the first backward and then finalises a reduction that no_sync() has never begun "
            "(expect_autograd_hooks_ INTERNAL ASSERT FAILED). Later windows with no_sync() are right; it would be so from the "
            "start if the first step were synchronised."
        )
        related = [Related(wrap.span.path, wrap.span.line, "wrap", "static_graph=True")]
        related += [Related(n.span.path, n.span.line, "no-sync", "switches the synchronisation off") for n in forward.no_sync[:1]]
        return self.finding(forward.span, message, explanation, related=related, guards=forward.guards)

    def _finding(self, wrapper: Obj, node: Checkpoint, again: Node | None, confidence: str) -> Finding:
        how = "With use_reentrant=True" if isinstance(v := node.use_reentrant, Const) and v.value else "Re-entrant by default"
        if again is None:
            message = f"{how}, this checkpoint clashes with find_unused_parameters=True: its parameters are marked ready twice."
        elif again is node:
            message = f"{how}, this checkpoint runs over the same layer in every turn of a loop, so its parameters are ready twice."
        else:
            message = (
                f"{how}, this checkpoint runs over a layer that line {again.span.line} uses too, so its parameters are ready twice."
            )
        explanation = (
            "Every re-entrant checkpoint goes back by itself, and the reducer sees the gradient of the layer once for each: on all "
            "ranks it raises 'Expected to mark a variable ready only once', or leaves part of the gradient local. It would be "
            "right with use_reentrant=False, or with static_graph=True for a graph that never changes."
        )
        related = wrap_place(wrapper)
        if again is not None and again is not node:
            related.append(Related(again.span.path, again.span.line, "use", "uses the layer again"))
        fix = Fix("unsafe", self.fix_hint)
        return self.finding(node.span, message, explanation, related=related, guards=node.guards, confidence=confidence, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by the reducer's error or by gradients that stay local."""
        return "confirmed" if reducer_gave_up(run) else replicas_drift(run, [r for r in finding.related if r.role == "wrap"])
