"""DDP505: the script insists that the world size divides its accumulation count, and a launch's world size does not."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import EXITED, RecordedRun
from ddp_audit.events import EXCEPTION, STEP
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.launch.arithmetic import nearest_accumulations
from ddp_audit.launch.model import Launch
from ddp_audit.launch.notes import accumulation_of
from ddp_audit.launch.scaling import (
    Divisibility,
    Job,
    divisibility_checks,
    launch_span,
)
from ddp_audit.rule import Context, Rule
from ddp_audit_rules.launch._divisible import about_numbers, cause_of, in_config, judged, keeping, shown


class AccumulationNotDivisible(Rule):
    code = "DDP505"
    name = "accumulation-not-divisible"
    level = "error"
    reads_documents = True
    summary = (
        "A launch (named with --launch or --world-size, or documented in the script or next to it) whose world size does not "
        "divide the accumulation count, or another total, that the script checks (by an assert, or by an if that raises or ends "
        "the process); and config files with which no job of several processes starts. A number of a config file is reported "
        "there."
    )
    rationale = "Every rank fails the same check before the first update, so the job ends as soon as it has started."
    exceptions = (
        "Launches whose world size divides the number, launches that leave the world size open, numbers that are not known, "
        "and, where the user names a launch, all documented ones."
    )
    trace_evidence = "Every rank ends with the exception of the check, or with the exit code that it gives."
    source = "Plain arithmetic: A % W; the world size is nnodes times nproc_per_node (torch.distributed.run, torch 2.13)."
    fix_hint = "use an accumulation count that the world size divides, or a world size that divides the count"
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
model = DDP(torch.nn.Linear(4, 1))
assert accumulation_steps % world_size == 0
accumulation_steps //= world_size
torch.manual_seed(dist.get_rank())
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
        failing: dict[int, list[Launch]] = {}
        for launch in judged(context):
            job = Job(context.program, launch)
            for check in checks:
                finding = self._judge(context, job, launch, check)
                if finding is not None:
                    yield finding
                    failing.setdefault(checks.index(check), []).append(launch)
                    break  # the first check that fails is the one that stops the job
        if context.launch is None:
            for said in about_numbers(context, checks, failing):
                yield self.finding(**said)

    def _judge(self, context: Context, job: Job, launch: Launch, check: Divisibility) -> Finding | None:
        reached = job.reaches(check.node)
        if reached is False or job.holds(check.test) is not False:
            return None
        value, divisor = job.value(check.left), job.value(check.right)
        if type(value) is not int or type(divisor) is not int or divisor < 1 or value % divisor == 0:
            return None
        numbers = job.numbers(check.left, check.right)
        text = shown(job, check, value, numbers)
        place = check.node.span
        near = nearest_accumulations(value, divisor)
        starts_what = launch.describe_world()
        by = f"{divisor:,}" if divisor == launch.world_size else f"{check.right_text or 'the divisor'} = {divisor:,}"
        who = "This launch" if launch.path is not None else launch.where()[:1].upper() + launch.where()[1:]
        message = f"{who} starts {starts_what}, and {text} is not divisible by {by}: every rank stops at {place.place}."
        related = [Related(place.path, place.line, "check", check.node.text)]
        related += [Related(n.path, n.line, "value", str(n)) for n in numbers if n.path and n.line]
        if launch.path is not None and launch.line is not None:
            related.append(Related(launch.path, launch.line, "launch", launch.text))
            span = in_config(context, numbers, value) or launch_span(context, launch)
            if span.path != launch.path:
                message = message.replace("This launch", f"The launch of {launch.where()}", 1)
        else:
            span = place
        description = f"set {check.left_text or 'the count'} to {' or '.join(f'{count:,}' for count in near)}"
        why, fix = self._explain(job, launch, value, check), Fix("display-only", description + keeping(job, launch, value))
        return self.finding(
            span,
            message,
            why,
            related=related,
            confidence="likely" if reached else "possible",
            fix=fix,
            cause=cause_of(check, text),
        )

    def _explain(self, job: Job, launch: Launch, value: int, check: Divisibility) -> str:
        text = "All ranks evaluate the check with the same numbers before they train, so all of them stop and none is left waiting."
        if check.node.raises:
            return text
        text += " Under python -O an assert is not evaluated: then "
        accumulation = accumulation_of(job)
        world = launch.world_size
        if accumulation is not None and accumulation.rest and accumulation.divisor == world and accumulation.division is not None:
            place = accumulation.division.span
            done = accumulation.per_rank * accumulation.divisor
            return text + (
                f"{place.place} rounds {value} / {world} down to {accumulation.per_rank}, and an update has {done} "
                f"micro-batches instead of {value}."
            )
        return text + "the division that it guards rounds down in silence."

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where the check ended every rank, by its exception or by an exit code; not-observed where one took a step."""
        if any(event.kind == STEP for _, event in run.all_events()):
            return "not-observed"
        places = [(finding.span.path, finding.span.line, finding.span.end_line)]
        places += [(place.path, place.line, place.line) for place in finding.related if place.role == "check"]
        stopped = {rank for place in places for rank, event in run.events_at(*place) if event.kind == EXCEPTION}
        stopped |= {number for number, rank in run.ranks.items() if rank.state == EXITED and rank.code}
        return "confirmed" if stopped and stopped == set(run.ranks) else "not-exercised"
