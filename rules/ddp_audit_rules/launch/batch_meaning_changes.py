"""DDP501: the batch of an update is another one on another number of processes than the script says."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.launch.answer import meaning
from ddp_audit.launch.lengths import growth
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Init, Program, Wrap
from ddp_audit.tree.questions import is_kind
from ddp_audit_rules.launch._batches import (
    batch_per_process,
    fixed_devices,
    is_option,
    rates,
    same_arguments,
    says_all,
    split_batches,
)


class BatchMeaningChanges(Rule):
    code = "DDP501"
    name = "batch-meaning-changes"
    level = "info"
    reads_documents = True
    summary = (
        "A batch that means something else after scaling out: a number of devices that is fixed in the source, where a global "
        "batch is divided by it; a learning rate that grows with the processes although the batch of an update does not; an option "
        "that says it is the batch of all processes and is used as that of one; documented launches with equal arguments on other "
        "numbers of processes, whose updates differ in size."
    )
    rationale = (
        "With W processes an update is made of W x a x B samples. Where the script takes a per-process number for a global one, or "
        "the other way round, the same configuration trains with another batch and a learning rate that was tuned for another one."
    )
    exceptions = (
        "Batches that are said to be per process, optimizers that adapt their step, learning rates without a factor, divisions by "
        "the real world size, and a named launch on as many processes as the source says."
    )
    trace_evidence = "Samples an update, counted over all ranks, that are not the configured ones."
    source = "Plain arithmetic; DDP averages the gradients of the ranks (torch 2.13, nn/parallel/distributed.py)."
    outcome = "shows 16 samples an update"
    fix_hint = "take the world size from torch.distributed.get_world_size(), and print the samples of an update at the start"
    bad = '''"""Trains a line with updates of 64 samples: on 8 processes. On two it makes them of 16."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

num_devices = 8
global_batch_size = 64
micro_batch_size = 4
batch_size = global_batch_size // num_devices
accumulation_steps = batch_size // micro_batch_size

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = torch.zeros(1)
for micro_step in range(accumulation_steps):
    x = torch.randn(micro_batch_size, 4)
    ((model(x) - x.sum(1, keepdim=True)).pow(2).mean() / accumulation_steps).backward()
    seen += len(x)
optimizer.step()
dist.all_reduce(seen)
print(f"{int(seen)} samples an update")
dist.destroy_process_group()
'''
    good = (
        bad.replace(": on 8 processes. On two it makes them of 16", ", whatever the number of processes is")
        .replace("num_devices = 8\n", "")
        .replace("batch_size = global_batch_size // num_devices\naccumulation_steps = batch_size // micro_batch_size\n", "")
        .replace(
            'dist.init_process_group("gloo")\n',
            'dist.init_process_group("gloo")\nsamples_at_once = micro_batch_size * dist.get_world_size()\n'
            "assert global_batch_size % samples_at_once == 0\naccumulation_steps = global_batch_size // samples_at_once\n",
        )
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        yield from self._fixed(context)
        yield from self._scaled(program)
        yield from self._said(program)
        for first, before, other, after in same_arguments(context) if context.launch is None else ():
            message = (
                f"With equal arguments {first.where()} trains with {before.tokens:,} {before.unit} an update ({before.world} "
                f"processes), this launch with {after.tokens:,} ({after.world}): {meaning(after)}."
            )
            line = other.line or 1
            span = Span(other.path or program.entry, line, other.column or 1, other.end_line or line, (other.column or 1) + 1)
            related = [Related(first.path or program.entry, first.line or 1, "launch", first.text)]
            sums = f"{before.product()} = {before.tokens:,}; {after.product()} = {after.tokens:,}."
            yield self.finding(span, message, sums, related=related)

    def _fixed(self, context: Context) -> Iterable[Finding]:
        program, world = context.program, context.launch.world_size if context.launch is not None else None
        makes = program.has(Init, Wrap) or program.frameworks.makes_group
        for fixed in fixed_devices(program) if makes else ():
            devices = int(fixed.devices.value)
            if world == devices:
                continue
            other = world or 2 * devices
            made = int(fixed.total.value) // devices * other
            place = fixed.node.span
            yield self.finding(
                Span(fixed.devices.path, fixed.devices.line, 1, fixed.devices.line, 2),
                f"{place.place} divides {fixed.total} by {fixed.devices.name} = {devices} and not by the world size: on {other} "
                f"processes an update has {made:,}.",
                "Every process does the share of one of the number that is written here, however many there are. Nothing checks "
                "that the two are equal, and the learning rate stays the same.",
                related=[Related(place.path, place.line, "division", fixed.node.text)],
            )

    def _scaled(self, program: Program) -> Iterable[Finding]:
        split = next(split_batches(program), None)
        if split is None:
            return
        node, dividend = split
        for optimizer, rate in rates(program):
            times = growth(rate)
            if times is not None and times > 1.5 and not is_kind(optimizer.object, "divides-scale-out"):
                yield self.finding(
                    optimizer.span,
                    f"The learning rate ({rate.text or 'given here'}) grows with the number of processes, and {dividend} does not: "
                    f"{node.place} divides it among them.",
                    "Scaling the rate with the processes goes with a batch that each process has for itself. Where the batch of an "
                    "update stays the same, W processes take steps that are W times as large for the same samples.",
                    related=[Related(node.span.path, node.span.line, "division", node.text)],
                    guards=optimizer.guards,
                )

    def _said(self, program: Program) -> Iterable[Finding]:
        """An option that is called the batch of all processes, and is given to each process's loader."""
        found = batch_per_process(program)
        if found is None or program.frameworks.divides_batches:
            return
        made, default, words = found
        fixed = all(is_option(rate) for _, rate in rates(program)) and bool(rates(program))
        plain = not any(is_kind(node.object, "divides-scale-out") for node, _ in rates(program))
        if not (says_all(f"{default.name.replace('_', ' ')} {words}") and program.has(Init, Wrap)):
            return
        rest = " The learning rate is that of the option too." if fixed and plain else ""
        yield self.finding(
            made.span,
            f"{default.name} is documented as the batch of all processes, but each process takes as many here: an update has "
            "world-size times the samples.",
            f"The loader's batch size is that of one process; the sampler gives each process its own samples.{rest}",
            related=[Related(default.span.path, default.span.line, "option", words)],
            guards=made.guards,
        )
