"""DDP804: gradients are clipped where they are not what the step uses, or by a norm that counts them once for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, Clip, Collective, Program, Step, Wrap
from ddp_audit.tree.questions import comes_from, first_of_each_place, is_default, reduce_op
from ddp_audit_rules.facts.recorded_uses import EARLY, SCALED, clips_at
from ddp_audit_rules.numerics._clipping import (
    backward_before,
    is_divided_after,
    is_norm,
    is_norm_used,
    is_of_scaled_gradients,
    is_taken_more_often,
    step_after,
)


class ClipAtWrongPlace(Rule):
    code = "DDP804"
    name = "clip-at-wrong-place"
    level = "warning"
    summary = (
        "Gradients that are clipped after every micro-batch while the step is taken after several; that are clipped while the "
        "GradScaler's factor is still in them; or a gradient norm that is summed over the ranks of a DDP model."
    )
    rationale = (
        "Clipped part by part, the sum is no longer that of the gradients, and inside of no_sync each rank cuts its own by "
        "another factor. Scaled gradients are thousands of times too long, so the limit cuts every one of them and unscaling "
        "leaves next to nothing. After DDP's mean every rank holds the same gradients: a norm that is summed over W ranks is "
        "the square root of W times too great, or W times where it was not squared."
    )
    exceptions = (
        "One clip after the backward that is reduced, behind unscale_; norms over shards (FSDP, tensor or pipeline parallel "
        "groups); norms that are averaged, or compared, or gathered to be looked at."
    )
    trace_evidence = (
        "torch's clipping at that line cut gradients to which a backward pass added before the step, or from which a GradScaler "
        "took its scale afterwards. A norm that is summed over the ranks is not confirmed: a trace holds no values."
    )
    source = (
        "torch 2.13, amp/grad_scaler.py: unscale_ before clip_grad_norm_; nn/parallel/distributed.py: gradients are averaged in "
        "backward. Seen in runs: the norm after an all_reduce of its square is 1.41 times that of the gradients on two ranks."
    )
    outcome = "shows norm is 1.41 times that of the gradients"
    fix_hint = (
        "clip once, between the last backward of the window (with `scaler.unscale_(optimizer)` behind it) and the step, by "
        "the local norm"
    )
    bad = '''"""Sums the squared norm over the ranks, though all hold the same gradients, and clips by what comes out."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    grads = [p.grad for p in model.parameters()]
    own_norm = torch.cat([g.flatten() for g in grads]).norm()
    norm = own_norm**2
    dist.all_reduce(norm)
    norm = norm.sqrt()
    for g in grads:
        g.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))
    if step == 0 and dist.get_rank() == 0:
        print(f"the norm is {norm / own_norm:.2f} times that of the gradients", flush=True)
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("    dist.all_reduce(norm)\n", "").replace(
        "Sums the squared norm over the ranks, though all hold the same gradients, and clips by what comes out",
        "Clips by the local norm, which is the same on all ranks",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not any(n.style == "ddp" for n in program.of(Wrap)):
            return
        for clip in first_of_each_place(program.of(Clip)):
            step, backward = step_after(program, clip), backward_before(program, clip)
            if step is None or backward is None:
                continue
            finding = self._on_micro_step(program, clip, step, backward) or self._scaled(program, clip, step, backward)
            if finding is not None:
                yield finding
        if not program.frameworks.shards_parameters:
            yield from self._summed_norms(program)

    def _on_micro_step(self, program: Program, clip: Clip, step: Step, backward: Backward) -> Finding | None:
        if not is_taken_more_often(program, clip, step, backward):
            return None
        message = (
            f"Gradients are clipped after every micro-batch, but the step of line {step.span.line} uses the sum of several: its "
            "parts are scaled differently."
        )
        explanation = (
            "The first micro-batches are cut to the limit and what follows is added to that: neither the direction nor the length "
            "is that of the whole batch. Micro-batches inside of no_sync are cut on each rank by a norm of its own."
        )
        related = [Related(step.span.path, step.span.line, "step", "uses the gradients of several micro-batches")]
        related += [Related(g.span.path, g.span.line, "guard", g.text) for g in step.guards if g not in clip.guards][-1:]
        return self.finding(clip.span, message, explanation, related=related, guards=clip.guards)

    def _scaled(self, program: Program, clip: Clip, step: Step, backward: Backward) -> Finding | None:
        if not is_of_scaled_gradients(program, clip, step, backward):
            return None
        message = (
            "Gradients are clipped here before the GradScaler's factor is removed (line "
            f"{step.span.line}), so the limit is thousands of times too low."
        )
        explanation = "All ranks cut alike, so nothing differs between them. Call scaler.unscale_(optimizer) once, before the clip."
        related = [
            Related(backward.span.path, backward.span.line, "backward", backward.text),
            Related(step.span.path, step.span.line, "step", step.text),
        ]
        fix = Fix("unsafe", "call scaler.unscale_(optimizer) before the clip") if step.span.path == clip.span.path else None
        return self.finding(clip.span, message, explanation, related=related + guard_relations(clip), guards=clip.guards, fix=fix)

    def _summed_norms(self, program: Program) -> Iterator[Finding]:
        for node in first_of_each_place(program.of(Collective)):
            if node.op != "all_reduce" or node.target is None or reduce_op(node) != "SUM":
                continue
            group = node.args.get("group")
            if (group is not None and not is_default(group)) or not is_norm(node.target) or is_divided_after(program, node):
                continue
            squared = comes_from(node.target, "square")
            times = "sqrt(world size) times" if squared else "world-size times"
            message = f"After DDP's mean every rank holds the same gradients, so their norm summed over ranks is {times} too large."
            explanation = (
                "Clipping by it cuts gradients that are within the limit, and more on more ranks. A sum over ranks is right where "
                "each holds a shard of the gradients, and for the norm of what was not reduced."
            )
            related = [Related(w.span.path, w.span.line, "wrap", "averages the gradients") for w in list(program.of(Wrap))[:1]]
            confidence = "likely" if is_norm_used(program, node) else "possible"
            related += guard_relations(node)
            yield self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By what became of the gradients after each clip. A step that is left out occasionally is not a hazard."""
        found = list(clips_at(run, finding.span))
        if not found:
            return "not-exercised"
        return "confirmed" if 2 * sum(one in (EARLY, SCALED) for one in found) >= len(found) else "not-observed"
