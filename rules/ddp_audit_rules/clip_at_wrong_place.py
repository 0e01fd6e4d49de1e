"""DDP804: gradients are clipped where they are not what the step uses, or by a norm that counts them once for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.program.made import behind, operation_of
from ddp_audit.program.model import Guard, Node, Program, first_of_each_place
from ddp_audit.program.reach import is_default, reduce_op
from ddp_audit.program.values import Bound, Const, Expr, Value
from ddp_audit.rule import Context, Rule, guard_relations

_WINDOW = re.compile(r"accum|micro|grad_acc|acc_steps|accu", re.IGNORECASE)
_NORM = re.compile(r"norm", re.IGNORECASE)
_DIVIDES = re.compile(r"world|/=|div_?\(|ReduceOp\.(AVG|MAX|MIN)")


class ClipAtWrongPlace(Rule):
    code = "DDP804"
    name = "clip-at-wrong-place"
    level = "warning"
    what = (
        "Gradients that are clipped after every micro-batch while the step is taken after several; that are clipped while "
        "the "
        "GradScaler's factor is still in them; or a gradient norm that is summed over the ranks of a DDP model."
    )
    why = (
        "Clipped part by part, the sum is no longer that of the gradients, and inside of no_sync each rank cuts its own by "
        "another factor. Scaled gradients are thousands of times too long, so the limit cuts every one of them and unscaling "
        "leaves next to nothing. After DDP's mean every rank holds the same gradients: a norm that is summed over W ranks is "
        "the square root of W times too great, or W times where it was not squared."
    )
    quiet = (
        "One clip after the backward that is reduced, behind unscale_; norms over shards (FSDP, tensor or pipeline parallel "
        "groups); norms that are averaged, or compared, or gathered to be looked at."
    )
    confirmed = "Nothing that a trace holds: it knows no norms."
    source = (
        "torch 2.13, amp/grad_scaler.py: unscale_ before clip_grad_norm_; nn/parallel/distributed.py: gradients are averaged "
        "in backward. Seen in runs: the norm after an all_reduce of its square is 1.41 times that of the gradients on two "
        "ranks."
    )
    outcome = "shows norm is 1.41 times that of the gradients"
    remedy = (
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
        if not any(n.detail.get("style") == "ddp" for n in program.of("wrap")):
            return
        for clip in first_of_each_place(program.of("clip")):
            finding = self._on_micro_step(program, clip) or self._scaled(program, clip)
            if finding is not None:
                yield finding
        if not program.frameworks & {"fsdp", "deepspeed", "colossalai"}:
            yield from self._summed_norms(program)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """A trace holds no norms."""
        return "not-covered"

    def _on_micro_step(self, program: Program, clip: Node) -> Finding | None:
        step = _step_after(program, clip)
        backward = _backward_before(program, clip)
        if step is None or backward is None:
            return None
        if not _is_taken_more_often(program, clip, step, backward):
            return None
        message = (
            f"Gradients are clipped here after every micro-batch, and the step of line {step.span.line} uses the sum of "
            "several, so parts "
            "of the sum are cut by different factors."
        )
        explanation = (
            "The first micro-batches are cut to the limit and what follows is added to that: neither the direction nor the "
            "length is "
            "that of the whole batch. Micro-batches inside of no_sync are cut on each rank by a norm of its own."
        )
        related = [Related(step.span.path, step.span.line, "step", "uses the gradients of several micro-batches")]
        related += [Related(g.span.path, g.span.line, "guard", g.text) for g in step.guards if g not in clip.guards][-1:]
        return self.finding(clip.span, message, explanation, related=related, guards=clip.guards)

    def _scaled(self, program: Program, clip: Node) -> Finding | None:
        step = _step_after(program, clip)
        backward = _backward_before(program, clip)
        if step is None or backward is None or not step.detail.get("scaler") or not _is_scaled(backward.target):
            return None
        between = [n for n in program.of("unscale") if backward.number < n.number < clip.number and not _exclude(n, clip)]
        if between or _is_off(program):
            return None
        message = (
            "The gradients still carry the factor of the GradScaler when they are clipped here, and the step of line "
            f"{step.span.line} "
            "takes it out afterwards, so the limit is thousands of times lower than it says."
        )
        explanation = "All ranks cut alike, so nothing differs between them. Call scaler.unscale_(optimizer) once, before the clip."
        related = [
            Related(backward.span.path, backward.span.line, "backward", backward.text),
            Related(step.span.path, step.span.line, "step", step.text),
        ]
        fix = Fix("unsafe", "call scaler.unscale_(optimizer) before the clip") if step.span.path == clip.span.path else None
        return self.finding(clip.span, message, explanation, related=related + guard_relations(clip), guards=clip.guards, fix=fix)

    def _summed_norms(self, program: Program) -> Iterator[Finding]:
        for node in first_of_each_place(program.of("collective")):
            if node.detail.get("op") != "all_reduce" or node.target is None or reduce_op(node) != "SUM":
                continue
            group = node.args.get("group")
            if (group is not None and not is_default(group)) or not _is_norm(node.target) or _divides_after(program, node):
                continue
            squared = any(operation_of(v) in ("**", "pow", "square", "torch.square") for v in behind(node.target))
            times = "the square root of the number of ranks times" if squared else "as many times as there are ranks"
            message = (
                f"Every rank holds the same gradients after DDP's mean, so their norm summed over the ranks is {times} too great."
            )
            explanation = (
                "Clipping by it cuts gradients that are within the limit, and more on more ranks. A sum over ranks is right "
                "where each holds "
                "a shard of the gradients, and for the norm of what was not reduced."
            )
            related = [Related(w.span.path, w.span.line, "wrap", "averages the gradients") for w in list(program.of("wrap"))[:1]]
            confidence = "likely" if _is_used(program, node) else "possible"
            related += guard_relations(node)
            yield self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)


def _step_after(program: Program, clip: Node) -> Node | None:
    steps = [n for n in program.of("step") if n.number > clip.number and n.calls[:1] == clip.calls[:1]]
    same = [n for n in steps if not _exclude(n, clip)]
    # The step of the window may stand in the other arm of the condition that puts the micro-batch into no_sync().
    inside = any(block.test is None for block in clip.no_sync)
    return next(iter(same or [n for n in steps if inside and n.loops == clip.loops]), None)


def _backward_before(program: Program, clip: Node) -> Node | None:
    before = [n for n in program.of("backward") if n.number < clip.number and not _exclude(n, clip)]
    return before[-1] if before else None


def _exclude(one: Node, other: Node) -> bool:
    """Whether two places stand in different arms of one condition."""
    against = {(g.span, not g.polarity) for g in other.guards}
    return any((g.span, g.polarity) in against for g in one.guards)


def _is_one(guard: Guard, other: Guard) -> bool:
    """Whether two guards are one condition, or say the same twice."""
    return guard.span == other.span or (guard.text == other.text and guard.polarity == other.polarity)


def _is_taken_more_often(program: Program, clip: Node, step: Node, backward: Node) -> bool:
    """Whether several clips come before one step: the step waits for a window and the clip does not."""
    if any(block.test is None for block in clip.no_sync):
        return True
    zeros = [z for z in program.of("zero-grad") if z.calls[:1] == step.calls[:1]]
    if clip.loops == step.loops == backward.loops:
        own = [g for g in step.guards if not any(_is_one(g, other) for other in clip.guards)]
        waits = any(isinstance(v, Expr) and v.op == "%" for g in own for v in behind(g.test))
        cleared = [z for z in zeros if z.loops == step.loops and not any(_is_one(g, o) for g in own for o in z.guards)]
        return waits and bool(zeros) and not cleared
    if len(clip.loops) == len(step.loops) + 1 and clip.loops == backward.loops and clip.loops[:-1] == step.loops:
        inner = clip.loops[-1]
        return bool(_WINDOW.search(inner.text)) and not any(inner in z.loops for z in zeros)
    return False


def _is_scaled(loss: Value | None) -> bool:
    return loss is not None and any(operation_of(value) == "scale" for value in behind(loss))


def _is_off(program: Program) -> bool:
    """Whether a scaler is made that does nothing."""
    made = [n for n in program.of("scaler") if n.detail["what"] == "made"]
    return any(isinstance(off := n.args.get("enabled"), Const) and off.value is False and off.default is None for n in made)


def _is_norm(value: Value) -> bool:
    """Whether a value is the norm of gradients, or its square."""
    found = list(behind(value))
    if any(operation_of(inner) == "clip" for inner in found):
        return True
    of_gradients = any(
        (isinstance(inner, Bound) and inner.name == "grad") or operation_of(inner) == ".grad" or inner.text.endswith(".grad")
        for inner in found
    )
    squares = any(operation_of(inner) in ("**", "pow", "square", "torch.square") for inner in found)
    return of_gradients and (squares or any(_NORM.search(f"{operation_of(inner)} {inner.text}") for inner in found))


def _divides_after(program: Program, node: Node) -> bool:
    """Whether the lines behind an all_reduce make a mean of the sum."""
    lines = program.sources.get(node.span.path, [])
    return any(_DIVIDES.search(line) for line in lines[node.span.line - 1 : node.span.end_line + 3])


def _is_used(program: Program, node: Node) -> bool:
    """Whether the lines behind an all_reduce take the root of the sum, divide by it, or hold it against a limit."""
    name = re.escape(node.target.text) if node.target is not None and node.target.text else r"\w*norm"
    used = re.compile(
        rf"/\s*\(?\s*{name}|{name}\s*[<>]|[<>]=?\s*{name}|{name}\.sqrt|sqrt\({name}|{name}\s*\*\*|clip|clamp|max_norm"
    )
    lines = program.sources.get(node.span.path, [])
    return any(used.search(line) for line in lines[node.span.end_line : node.span.end_line + 12])
