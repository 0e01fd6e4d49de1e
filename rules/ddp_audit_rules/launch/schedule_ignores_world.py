"""DDP503: a learning-rate schedule is made for another number of steps than a process takes."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.launch.lengths import divided_names, growth, is_open, lengths
from ddp_audit.launch.scaling import depends_on_world
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Node, Program, SchedulerMade
from ddp_audit.tree.questions import first_of_each_place, is_given, samplers_of, shares_out, training_passes
from ddp_audit.tree.values import Value, defaults_in, the_object
from ddp_audit_rules.launch._schedules import is_stepped_in, prepare_of

_STEPS = ("num_training_steps", "total_steps", "steps_per_epoch", "T_max", "total_iters")
_PREPARED_ONCE = (("split_batches", True), ("step_scheduler_with_optimizer", False))


class ScheduleIgnoresWorld(Rule):
    code = "DDP503"
    name = "schedule-ignores-world"
    level = "warning"
    summary = (
        "A learning-rate schedule that is stepped after every batch and made for another number of steps than a process takes: for "
        "the batches of the whole data set where a sampler shares them out, for a share that is divided once more or multiplied by "
        "the world size, or without the factor that Accelerate's prepared schedulers need."
    )
    rationale = (
        "On W processes each takes a W-th of the batches, so a schedule for all of them has gone a W-th of its way when training "
        "ends: the learning rate never comes down. The other way round it has come down after a W-th of the training. All ranks do "
        "the same, and nothing is reported."
    )
    exceptions = (
        "Schedules stepped once an epoch, lengths of a loader that has the sampler, data set sizes over a batch that is global, "
        "constants, lengths that are not known; with Accelerate schedules times num_processes, lengths of loaders before they are "
        "prepared, split_batches and step_scheduler_with_optimizer=False."
    )
    trace_evidence = "The learning rate at the end of training is not the last one of the schedule."
    source = (
        "torch 2.13: DistributedSampler gives each rank ceil(n / W) indices (seen in a run); accelerate.scheduler: a prepared "
        "scheduler is stepped num_processes times a call unless split_batches is set."
    )
    outcome = "shows learning rate 0.0500 after the last step"
    fix_hint = (
        "make the schedule for the steps of one process: epochs times the length of the loader that has the sampler (for one that "
        "Accelerate prepares, times num_processes)"
    )
    bad = '''"""Trains a line; the learning rate should fall to 0, and on two ranks it is half of the first one at the end."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

epochs, batch_size = 2, 4
dist.init_process_group("gloo")
torch.manual_seed(1)
x = torch.randn(64, 4)
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = epochs * len(data) // batch_size
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    for inputs, wanted in loader:
        (model(inputs) - wanted).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
print(f"learning rate {scheduler.get_last_lr()[0]:.4f} after the last step")
dist.destroy_process_group()
'''
    good = bad.replace("len(data) // batch_size", "len(loader)").replace(
        ", and on two ranks it is half of the first one at the end", ""
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of(SchedulerMade)):
            given = next(((name, node.args[name]) for name in _STEPS if name in node.args), None)
            if given is None:
                continue
            finding = self._accelerated(program, node, *given) or self._plain(program, node, *given)
            if finding is not None:
                yield finding

    def _accelerated(self, program: Program, node: SchedulerMade, name: str, steps: Value) -> Finding | None:
        """A scheduler that a framework steps once for each process, made for the updates of one."""
        if not program.frameworks.steps_once_a_process or is_open(steps) or name in ("T_max", "total_iters"):
            return None
        prepare = prepare_of(program, node)
        if prepare is None or depends_on_world(steps) or any(is_given(program, *pair) for pair in _PREPARED_ONCE):
            return None
        inside = {option.key for value in prepare.args.values() if (option := the_object(value, "loader")) is not None}
        for _, of, _ in lengths(program, steps):
            loader = the_object(of, "loader")
            if loader is None or loader.key in inside:
                return None  # the length before the loader is shared out counts the batches of all processes
        message = (
            f"{name} counts the updates of one process, but Accelerate steps the scheduler once a process: with W processes it "
            "ends after 1/W of the training."
        )
        remedy = "multiply the steps, and those of the warm-up, by num_processes, or do not hand the scheduler to prepare"
        related = [Related(prepare.span.path, prepare.span.line, "prepare", prepare.text)]
        return self._finding(node, steps, message, related, Fix("display-only", remedy))

    def _plain(self, program: Program, node: Node, name: str, steps: Value) -> Finding | None:
        if program.frameworks.steps_schedulers or is_open(steps):
            return None
        passes = [one for one in training_passes(program) if one.made is not None and is_stepped_in(program, node, one.loop)]
        shared = [p for p in passes if p.made is not None and any(shares_out(program, s) for s in samplers_of(p.made))]
        times = growth(steps)
        known = lengths(program, steps)
        if not shared or times is None or any(whole is None for _, _, whole in known):
            return None
        whole = [text for text, _, is_whole in known if is_whole]
        related = [Related(shared[0].iterate.span.path, shared[0].iterate.span.line, "loop", "steps are taken in this loop")]
        if whole and 0.9 < times < 1.1:
            if {default.name for default in defaults_in(steps)} & divided_names(program):
                return None  # the batch in it is that of all processes
            message = (
                f"{name} counts the batches of the whole data ({whole[0]}) and each process takes its share: with W processes "
                "training ends after 1/W of the schedule."
            )
        elif known and not whole and times < 0.5:
            message = (
                f"{name} divides the batches of a process ({known[0][0]}) by the world size again: with W processes the schedule "
                "ends after 1/W of the training."
            )
        elif not whole and times > 1.5:
            message = (
                f"{name} multiplies the steps of a process by the world size: with W processes training ends after 1/W of the "
                "schedule."
            )
        else:
            return None
        return self._finding(node, steps, message, related)

    def _finding(self, node: Node, steps: Value, message: str, related: list[Related], fix: Fix | None = None) -> Finding:
        explanation = (
            f"The number is {steps.text or 'given here'}. All ranks compute the same schedule, so nothing hangs and no rank "
            "differs; on one process the numbers are equal, which is why it is seen only after scaling out."
        )
        return self.finding(node.span, message, explanation, related=related, guards=node.guards, fix=fix)
