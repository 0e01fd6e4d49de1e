"""DDP803: the ranks scale their losses by different factors."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.faults import PARAMETERS_DIFFER
from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import LoadState, Node, Program, ScalerCall
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import RANK, Value, differs, worlds
from ddp_audit_rules.facts.evidence import has_fault, seen_at
from ddp_audit_rules.facts.writers import ONE, ONE_A_NODE, is_distributed, who

_STATE = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "new_scale")


class ScalerDiffers(Rule):
    code = "DDP803"
    name = "scaler-differs"
    level = "info"
    summary = "A GradScaler whose state only some ranks restore, or that is made or updated with a value that differs by rank."
    rationale = (
        "DDP averages gradients that each rank has scaled by its own factor, and each rank divides the mean by its own again: the "
        "steps differ, and the parameters drift apart. Where the factor of one rank overflows, all skip the step, but they halve "
        "different factors."
    )
    exceptions = (
        "The ordinary scaler of a DDP script: reduced gradients carry an overflow to all ranks, so all scalers decide alike; "
        "states that all ranks restore; bfloat16 without a scaler."
    )
    trace_evidence = "Parameters that differ after a step, which the trace notes for the whole run."
    source = (
        "torch 2.13, amp/grad_scaler.py: the scale is kept by each process and nothing communicates it. Seen in runs: with 2 "
        "and 4 as scales the parameters of two ranks differ after one step."
    )
    outcome = "gradients-local; parameters-differ"
    fix_hint = "restore the scaler's state on every rank, and make it with the same values"
    bad = '''"""Rank 0 alone restores the state of the gradient scaler; the other scales by another factor."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
saved = {"scale": 2.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0}
if dist.get_rank() == 0:
    scaler.load_state_dict(saved)
for step in range(2):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
'''
    good = bad.replace("if dist.get_rank() == 0:\n    scaler.load", "scaler.load").replace(
        "Rank 0 alone restores the state of the gradient scaler; the other scales by another factor",
        "All ranks restore the state of the gradient scaler",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not is_distributed(program):
            return
        for node in first_of_each_place(program.of(LoadState, ScalerCall)):
            if node.object is None or node.object.kind != "scaler":
                continue
            if isinstance(node, LoadState):
                if who(program, node) in (ONE, ONE_A_NODE) and node.rank_guards and not _elsewhere(program, node):
                    yield self._finding(node, "Only some ranks restore the state of their gradient scaler here")
            elif any(_by_rank(program, value) for name, value in node.args.items() if name in _STATE):
                yield self._finding(node, "The ranks give their gradient scalers different values here")

    def _finding(self, node: Node, what: str) -> Finding:
        message = f"{what}, so ranks scale by different factors the gradients that DDP averages, and their steps differ."
        explanation = (
            "Each rank divides the averaged gradients by its own factor. With equal factors nothing is wrong: the averaged "
            "gradients overflow on all ranks or on none, so the scalers stay equal."
        )
        related = [Related(n.span.path, n.span.line, "scaler", n.text) for n in [node]] + guard_relations(node)
        confidence = "likely" if node.is_called else "possible"
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by parameters that differ in a run that came here."""
        if not seen_at(finding, run):
            return "not-exercised"
        return "confirmed" if has_fault(run, PARAMETERS_DIFFER) else "not-observed"


def _elsewhere(program: Program, node: Node) -> bool:
    """Whether the ranks that do not get here restore the same scaler at another place."""
    others = [n for n in program.of(LoadState) if n is not node and n.object is not None and node.object is not None]
    return any(n.object is not None and node.object is not None and n.object.key == node.object.key for n in others)


def _by_rank(program: Program, value: Value) -> bool:
    return RANK in differs(value, worlds(program.world_size))
