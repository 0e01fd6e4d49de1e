"""DDP110: gradients are averaged by hand, and the average is not one."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FACTOR
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Collective, Node
from ddp_audit.tree.questions import adds_up, first_of_each_place
from ddp_audit_rules.facts.evidence import seen_at
from ddp_audit_rules.gradients._gradients import (
    averages,
    backward_of,
    divisions_of,
    has_group,
    is_of_gradients,
    step_before,
    sure_divisions,
    synced_wrap,
)

_ON_TOP = (
    "DDP has averaged these gradients already; this all-reduce adds the means of all ranks, so they are world-size times too large."
)
_UNDIVIDED = (
    "This all-reduce sums gradients over the ranks and nothing divides them by the world size, so they are world-size times too "
    "large."
)
_TWICE = "The gradients are divided by the world size twice, so they are world-size times too small."


class ManualGradientAveraging(Rule):
    code = "DDP110"
    name = "manual-gradient-averaging"
    level = "warning"
    summary = (
        "An all-reduce of gradients by the program whose result is not their mean: a sum that nothing divides by the number of "
        "ranks, a mean that is divided once more, a sum on top of DDP's own mean, or one that comes after the optimizer's step."
    )
    rationale = (
        "The gradient is as many times too large as there are ranks, or too small: the learning rate is scaled by the size of the "
        "job without anybody saying so, clipping and weight decay weigh differently, and results change with every other number of "
        "ranks. After the step the reduction is for nothing, and every rank has stepped with gradients of its own."
    )
    exceptions = (
        "A division of the gradient, of the loss before its backward or of the learning rate by the number of ranks; ReduceOp.AVG; "
        "a sum over the ranks of a loss that is a sum over the batch; a reduction over a group that is given; norms, counts and "
        "flags; gradients inside an autograd function; a redundant mean on top of DDP's, which changes nothing; optimizers that "
        "divide by themselves, as far as that is visible."
    )
    trace_evidence = (
        "Gradients that are the number of ranks times what the backward left (the silent fault wrong-factor). Of "
        "gradients that no wrapper holds a trace knows nothing."
    )
    source = (
        "torch 2.13: all_reduce sums by default, reducer.cpp divides by the world size; seen in runs with gloo: a sum by hand on "
        "top of DDP gives twice the gradient on two ranks, a mean by hand on top of it changes nothing."
    )
    fix_hint = "divide once by dist.get_world_size() (or use ReduceOp.AVG) between backward and step, or let DDP do it alone"
    outcome = "shows 2.00 times the mean gradient"
    bad = '''"""Averages gradients by hand and forgets to divide: the step is as many times too long as there are ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    every = [torch.zeros(1) for _ in range(2)]
    dist.all_gather(every, net.bias.grad)
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    print(f"{(net.bias.grad / torch.stack(every).mean(0)).item():.2f} times the mean gradient", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Averages gradients by hand and forgets to divide: the step is as many times too long as there are ranks",
        "Averages gradients by hand: the sum over the ranks, divided by their number",
    ).replace(
        "        dist.all_reduce(parameter.grad)\n",
        "        dist.all_reduce(parameter.grad)\n        parameter.grad /= dist.get_world_size()\n",
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        reductions = [n for n in program.of(Collective) if n.op == "all_reduce" and is_of_gradients(n)]
        for node in first_of_each_place(reductions):
            backward = backward_of(program, node)
            if backward is None or has_group(node):
                continue
            step = step_before(program, node)
            divisions = divisions_of(program, node, backward)
            if step is not None:
                yield self._late(node, step)
            elif len(sure := sure_divisions(divisions, node, backward)) > 1 or (sure and averages(node)):
                places = [Related(d.span.path, d.span.line, "division", "divides by the number of ranks") for d in sure]
                yield self._finding(node, _TWICE, places)
            elif not divisions and not averages(node):
                wrapped = synced_wrap(program, backward)
                if wrapped is None and adds_up(program, backward.target):
                    continue  # the sum of sums is that of the whole batch, on any number of ranks
                yield self._finding(node, _ON_TOP if wrapped else _UNDIVIDED, [] if wrapped is None else [wrapped])

    def _finding(self, node: Node, message: str, related: list[Related]) -> Finding:
        explanation = (
            "All ranks get the same wrong gradient, so nothing hangs and their parameters stay equal. Plain SGD then trains with "
            "another learning rate on every number of ranks; Adam hides it, up to epsilon, clipping and weight decay. It is right "
            "where the loss or the learning rate was meant to make up for it."
        )
        return self.finding(node.span, message, explanation, related=related, guards=node.guards)

    def _late(self, node: Node, step: Node) -> Finding:
        message = (
            f"This all-reduce of gradients comes after the step of line {step.span.line} that uses them, so every rank trains "
            "on its own."
        )
        explanation = (
            "Each rank steps with the gradients of its own batch; the reduced ones are never used. The parameters of the ranks "
            "differ from the first step on, without an error."
        )
        related = [Related(step.span.path, step.span.line, "step", "uses the gradients before they are reduced")]
        return self.finding(node.span, message, explanation, related=related, guards=node.guards, severity="error")

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By what the gradients that DDP had averaged were multiplied by until the step. Buckets and this all-reduce in one run
        show nothing: it may carry other parameters."""
        from ddp_audit.compare.factors import DIVIDED, MULTIPLIED, RIGHT, verdict_of

        verdicts = {verdict_of(event) for _, event in run.events_of(FACTOR)} - {None}
        if verdicts and seen_at(finding, run):
            if verdicts <= {MULTIPLIED, DIVIDED}:
                return "confirmed"
            if verdicts == {RIGHT}:
                return "not-observed"
        return "not-exercised"
