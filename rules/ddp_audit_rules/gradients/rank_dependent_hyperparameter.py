"""DDP116: ranks that train one model step with settings that differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import NewGroup, PointToPoint, Wrap
from ddp_audit_rules.facts.training import replicas_drift

if TYPE_CHECKING:
    from ddp_audit.explore.exact.settings import Unequal


class RankDependentHyperparameter(Rule):
    code = "DDP116"
    name = "rank-dependent-hyperparameter"
    level = "error"
    summary = (
        "A learning rate, a weight decay or another setting of an optimizer over wrapped parameters, or the value that their "
        "gradients are clipped to, that differs between ranks."
    )
    rationale = (
        "DDP gives all ranks equal gradients and never compares parameters again. Each rank then steps by its own setting, so the "
        "replicas drift apart from the first step on. Nothing hangs. The checkpoint of rank 0 is one of several models, and the "
        "gradients are means over models that differ."
    )
    exceptions = (
        "Settings that are broadcast first; settings scaled by the world size, which are equal; seeds of a rank; groups of "
        "parameters that no wrapper holds, which may have settings of their rank; settings that the predicted run does not know. "
        "Numbers of epochs and of micro-batches that differ make ranks wait, which DDP205 and DDP213 report."
    )
    trace_evidence = "Parameters that differ between ranks after a step, in a run in which their gradients were equal."
    source = (
        "torch 2.13: DDP broadcasts parameters in its constructor and reduces gradients; optimizers know nothing of ranks. Seen in "
        "runs with gloo: with two learning rates the parameters of two ranks differ after the first step."
    )
    fix_hint = "decide on the setting on one rank and broadcast it (`dist.broadcast_object_list`) before the optimizer is made"
    outcome = "parameters-differ"
    bad = '''"""Rank 0 alone takes the learning rate of a sweep."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
config = {"lr": 0.1}
if dist.get_rank() == 0:
    config["lr"] = 0.3
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 0 alone takes the learning rate of a sweep", "Rank 0 takes the learning rate of a sweep for all ranks"
    ).replace(
        '    config["lr"] = 0.3\n',
        '    config["lr"] = 0.3\nbox = [config]\ndist.broadcast_object_list(box, src=0)\nconfig = box[0]\n',
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not program.executed or not program.has(Wrap):
            return
        predicted = context.exploration.predicted()
        if predicted is None or program.has(NewGroup):  # replicas of sub-groups may have settings of their own
            return
        received = program.has(PointToPoint)  # what one rank has and the other gets from it is one value
        places: dict[tuple[str, int], list[Unequal]] = {}
        for unequal in predicted.run.unequal:
            if not (received and "a value of its own" in unequal.values.values()):
                places.setdefault((unequal.setting.path, unequal.setting.line), []).append(unequal)
        for found in places.values():
            yield self._finding(context, found)

    def _finding(self, context: Context, found: list[Unequal]) -> Finding:
        setting = found[0].setting
        names = " and ".join(dict.fromkeys(f"`{one.setting.name}`" for one in found[:3]))
        values = ", ".join(f"rank {rank}: {value}" for rank, value in sorted(found[0].values.items())[:4])
        message = f"The ranks step with different {names} ({values}), so their parameters drift apart."
        explanation = (
            "All ranks get the same averaged gradient, and each applies it by its own setting. The parameters differ from the "
            "first step on, and no error is raised."
        )
        lines = context.lines(setting.path)
        text = lines[setting.line - 1] if 0 < setting.line <= len(lines) else ""
        start = len(text) - len(text.lstrip()) + 1
        span = Span(setting.path, setting.line, start, setting.line, max(start, len(text.rstrip()) + 1))
        wraps = [Related(w.span.path, w.span.line, "wrap", "makes the replicas that drift apart") for w in context.program.of(Wrap)]
        return self.finding(span, message, explanation, related=wraps[:2])

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by parameters that differ between ranks."""
        return replicas_drift(run, [related for related in finding.related if related.role == "wrap"])
