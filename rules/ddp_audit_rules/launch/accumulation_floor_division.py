"""DDP502: an accumulation count or a global batch is divided by the number of processes and rounded down in silence."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.launch.scaling import Job, assigned_number, depends_on_world, division_parts
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import FloorDivision, Node
from ddp_audit.tree.questions import first_of_each_place, says
from ddp_audit.tree.values import MISSING, Const, Value, World, evaluate
from ddp_audit_rules.launch._floor_divisions import (
    Shares,
    counts_one_node,
    dealt_out,
    example_of,
    is_remainder_checked,
    severity_of,
)


class AccumulationFloorDivision(Rule):
    code = "DDP502"
    name = "accumulation-floor-division"
    level = "warning"
    summary = (
        "An accumulation count or a global batch that is divided by the number of processes with `//`, without a check that "
        "nothing remains; also one whose remainder is dealt out to some ranks. The batch of a process (`batch_size // world_size`) "
        "is an info: there a smaller batch may be meant."
    )
    rationale = (
        "The quotient is rounded down on every rank: an update has fewer micro-batches than configured, with fewer than processes "
        "none at all, and the same configuration means another optimisation on another number of processes. Nothing is reported."
    )
    exceptions = (
        "Divisions whose remainder some condition of the program looks at (assert, raise, rounding up), dividends made from "
        "the world size, counts of samples and of evaluation batches, and a named launch that leaves no remainder."
    )
    trace_evidence = "Micro-steps an update times world size, counted in the trace, that are fewer than the configured total."
    source = "Python: // rounds towards minus infinity."
    fix_hint = "assert that the world size divides the count before the division"
    outcome = "clean; reductions 6"
    bad = '''"""Trains a line with 5 micro-batches an update: on 2 ranks it makes 4."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

accumulation_steps = 5

dist.init_process_group("gloo")
accumulation_steps //= dist.get_world_size()
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    for micro_step in range(accumulation_steps):
        x = torch.randn(8, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / accumulation_steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
'''
    good = (
        bad.replace("with 5 micro-batches an update: on 2 ranks it makes 4", "with 6 micro-batches an update over all ranks")
        .replace("accumulation_steps = 5", "accumulation_steps = 6")
        .replace("accumulation_steps //=", "assert accumulation_steps % dist.get_world_size() == 0\naccumulation_steps //=")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        job = Job(program, context.launch)
        quotients: set[tuple[str, str]] = set()  # path and name of what a division by the world size was assigned to
        for node in first_of_each_place(program.of(FloorDivision)):
            left, right = node.left, node.right
            if left is None or right is None or depends_on_world(left) or _is_negative(left):
                continue
            target, dividend, divisor = division_parts(program, node)
            by_world = depends_on_world(right) or says(divisor, "number-of-processes")
            after = (node.span.path, dividend) in quotients and says(target, "accumulation")
            if not by_world and not after:
                continue
            raw = [left.default.name] if isinstance(left, Const) and left.default is not None and "." not in dividend else []
            names = " ".join([dividend, *raw])
            severity = severity_of(target, names, after)
            shares = dealt_out(program, left, job.world_size) if severity is not None else None
            if shares is not None and shares.weighs:
                yield self._dealt(node, dividend, shares)
            if severity is None or shares is not None or is_remainder_checked(program, left, dividend):
                continue
            if target:
                quotients.add((node.span.path, target))
            value, by = job.value(left), job.value(right)
            if job.world_size is not None and by_world and type(value) is int and type(by) is int and by > 0 and value % by == 0:
                continue
            yield self._finding(context, node, left, right, (dividend, divisor), severity)

    def _dealt(self, node: Node, dividend: str, shares: Shares) -> Finding:
        most, least = max(shares.shares), min(shares.shares)
        message = (
            f"The remainder of {dividend} is dealt out: on {shares.size} processes some ranks do {most} micro-batches and others "
            f"{least}, which weigh more."
        )
        explanation = "DDP takes the mean over the ranks, whatever each of them did. "
        if least:
            explanation += (
                f"Where each rank divides by its own number, a micro-batch of a rank with {least} weighs {most / least:.3g} times "
                f"as much as one of a rank with {most}."
            )
        else:
            explanation += "A rank without a micro-batch counts as one all the same."
        explanation += " All of them weigh alike where each loss is divided by the total over the number of processes."
        place = shares.loop.span
        related = [Related(place.path, place.line, "loop", shares.loop.text)]
        fix = Fix("display-only", f"divide each loss by {dividend} over the number of processes, or make the count divisible")
        return self.finding(node.span, message, explanation, related=related, severity="warning", guards=node.guards, fix=fix)

    def _finding(self, context: Context, node: Node, left: Value, right: Value, texts: tuple[str, str], severity: str) -> Finding:
        dividend, divisor = texts
        job = Job(context.program, context.launch)
        numbers = job.numbers(left, right)
        value = job.value(left) if job.world_size is not None else evaluate(left, World(0, 1, 1))
        own = None if value is MISSING else assigned_number(context.program, node, dividend, value)
        if own is not None and not any(number.value == value for number in numbers):
            numbers.append(own)
        named = next((str(number) for number in numbers if number.name.rpartition(".")[2] in dividend), dividend)
        example = example_of(job, left, right)
        message = f"{named} is divided by {divisor} and rounded down, without a check of the remainder{example}."
        explanation = (
            "All ranks compute the same quotient, so nothing hangs; the update is made of fewer sequences than configured, "
            "and of none where the number is smaller than the divisor."
        )
        if counts_one_node(right) or says(divisor, "device-count"):
            explanation += " The divisor counts the devices of one node, so on several nodes it is not the world size."
        elif not depends_on_world(right) and says(divisor, "number-of-processes"):
            explanation += f" {divisor} is a number in the source and not the world size of the job."
        related = [Related(n.path, n.line, "value", str(n)) for n in numbers if n.path and n.line]
        return self.finding(node.span, message, explanation, related=related, severity=severity, guards=node.guards)


def _is_negative(value: Value) -> bool:
    """Whether a dividend is below 0, which rounds up: `-(-count // world_size)`."""
    number = evaluate(value, World(0, 1, 1))
    return isinstance(number, int) and number < 0
