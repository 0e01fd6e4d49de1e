"""DDP505: the script insists that the world size divides its accumulation count, and a launch's world size does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_audit.compare.run import RAISED, RecordedRun
from ddp_audit.events import STEP
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.launch.arithmetic import nearest_accumulations, options
from ddp_audit.launch.model import PYTHON, Launch
from ddp_audit.launch.notes import accumulation_of, batch_of, block_of
from ddp_audit.launch.scaling import (
    ACCUMULATION,
    Divisibility,
    Job,
    Number,
    assigned_number,
    divisibility_checks,
    launch_span,
    starts,
)
from ddp_audit.rule import Context, Rule


class AccumulationNotDivisible(Rule):
    code = "DDP505"
    name = "accumulation-not-divisible"
    level = "error"
    what = (
        "A launch (named with --launch or --world-size, or documented in the script) whose world size does not divide the "
        "accumulation count, or another total, that the script asserts it to divide."
    )
    why = "Every rank fails the same check before the first update, so the job ends as soon as it has started."
    quiet = (
        "Launches whose world size divides the number, launches that leave the world size open, numbers that are not known, "
        "and, where the user names a launch, all documented ones."
    )
    confirmed = "Every rank ends with the exception of the check."
    source = "Plain arithmetic: A % W; the world size is nnodes times nproc_per_node (torch.distributed.run, torch 2.13)."
    remedy = "use an accumulation count that the world size divides, or a world size that divides the count"
    outcome = "error all: AssertionError"
    bad = '''"""Trains a line with 5 micro-batches an update.

torchrun --standalone --nproc_per_node=2 line.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

accumulation_steps = 5

dist.init_process_group("gloo")
world_size = dist.get_world_size()
assert accumulation_steps % world_size == 0
accumulation_steps //= world_size
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
    good = bad.replace("with 5 micro", "with 6 micro").replace("accumulation_steps = 5", "accumulation_steps = 6")

    def check(self, context: Context) -> Iterable[Finding]:
        checks = divisibility_checks(context.program)
        for launch in _judged(context):
            job = Job(context.program, launch)
            for check in checks:
                finding = self._judge(context, job, launch, check)
                if finding is not None:
                    yield finding
                    break  # the first check that fails is the one that stops the job

    def _judge(self, context: Context, job: Job, launch: Launch, check: Divisibility) -> Finding | None:
        reached = job.reaches(check.node)
        if reached is False or job.holds(check.test) is not False:
            return None
        value, divisor = job.value(check.left), job.value(check.right)
        if type(value) is not int or type(divisor) is not int or divisor < 1 or value % divisor == 0:
            return None
        numbers = job.numbers(check.left, check.right)
        shown = _shown(job, check, value, numbers)
        place = check.node.span
        near = nearest_accumulations(value, divisor)
        counts = " and ".join(f"{count:,}" for count in near)
        kind = "accumulation counts" if ACCUMULATION.search(shown) else "values"
        starts_what = launch.describe_world()
        by = f"{divisor:,}" if divisor == launch.world_size else f"{check.right_text or 'the divisor'} = {divisor:,}"
        who = "This launch" if launch.path is not None else launch.where()[:1].upper() + launch.where()[1:]
        message = (
            f"{who} starts {starts_what}, and {shown} is not divisible by {by} ({value:,} % {divisor:,} = "
            f"{value % divisor}), so the check of {place.path}:{place.line} stops every rank; the {kind} next to {value:,} "
            f"that divide are {counts}."
        )
        if len(near) == 1:
            message = message.replace(
                f"the {kind} next to {value:,} that divide are {counts}", f"the least that divides is {counts}"
            )
        related = [Related(place.path, place.line, "check", check.node.text)]
        related += [Related(n.path, n.line, "value", str(n)) for n in numbers if n.path and n.line]
        if launch.path is not None and launch.line is not None:
            related.append(Related(launch.path, launch.line, "launch", launch.text))
            span = launch_span(context, launch)
        else:
            span = place
        description = f"set {check.left_text or 'the count'} to {' or '.join(f'{count:,}' for count in near)}"
        return self.finding(
            span,
            message,
            self._explain(job, launch, value),
            related=related,
            confidence="likely" if reached else "possible",
            fix=Fix("display-only", description + _keeping(job, launch, value)),
        )

    def _explain(self, job: Job, launch: Launch, value: int) -> str:
        text = (
            "All ranks evaluate the check with the same numbers before they train, so all of them stop and none is left "
            "waiting. Under python -O an assert is not evaluated: then "
        )
        accumulation = accumulation_of(job)
        world = launch.world_size
        if accumulation is not None and accumulation.rest and accumulation.divisor == world and accumulation.division is not None:
            place = accumulation.division.span
            done = accumulation.per_rank * accumulation.divisor
            return text + (
                f"{place.path}:{place.line} rounds {value} / {world} down to {accumulation.per_rank}, and an update has {done} "
                f"micro-batches instead of {value}."
            )
        return text + "the division that it guards rounds down in silence."

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where every rank ended with an exception and none took a step; not-observed where one took a step."""
        if any(event.kind == STEP for _, event in run.all_events()):
            return "not-observed"
        states = {rank.state for rank in run.ranks.values()}
        return "confirmed" if states == {RAISED} else "not-covered"


def _judged(context: Context) -> Sequence[Launch]:
    """The named launch alone, else the documented ones that start this script with more than a plain python command."""
    entry = context.program.entry
    if context.launch is not None:
        return [context.launch] if context.launch.world_size is not None and starts(context.launch, entry) else []
    return [one for one in context.documented if one.world_size is not None and one.kind != PYTHON and starts(one, entry)]


def _shown(job: Job, check: Divisibility, value: int, numbers: Sequence[Number]) -> str:
    """The dividend with its origin: the configuration value that it is, or its text with those it was computed from."""
    number = next((n for n in numbers if n.value == value and n.name.rpartition(".")[2] in check.left_text), None)
    number = number or assigned_number(job.program, check.node, check.left_text, value)
    if number is not None:
        return str(number)
    origin = ", ".join(str(number) for number in job.numbers(check.left))
    return f"{check.left_text or 'the total'} = {value:,}" + (f" (from {origin})" if origin else "")


def _keeping(job: Job, launch: Launch, value: int) -> str:
    """The nearest choice of B that keeps the tokens of an update, where A, B and T are known."""
    accumulation, batch, block = accumulation_of(job), batch_of(job), block_of(job)
    if accumulation is None or accumulation.divisor != launch.world_size or accumulation.total.value != value or batch is None:
        return ""
    length = block.value if block is not None else 1
    tokens = value * batch.value * length
    unit = "tokens" if block is not None else "samples"
    exact = [o for o in options(accumulation.divisor, tokens, length, batch.value) if o.exact]
    if not exact:
        return f"; no micro-batch size keeps the {tokens:,} {unit} of an update"
    best = exact[0]
    return f"; with {batch.name} = {best.batch}, {best.accumulation} keeps the {tokens:,} {unit} of an update"
