"""DDP504: launches that do not describe the job that is meant, by the text next to them or by what they say themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.launch.environment import environment_faults, local_addresses
from ddp_audit.launch.jobs import Fault
from ddp_audit.launch.model import Launch, ProseClaim
from ddp_audit.launch.ranks import rank_faults
from ddp_audit.launch.scaling import launch_span, starts
from ddp_audit.rule import Context, Rule
from ddp_audit_rules.launch._launch_faults import by_claim, faults_of, starting_all


class LaunchMismatch(Rule):
    code = "DDP504"
    name = "launch-mismatch"
    level = "warning"
    reads_documents = True
    summary = (
        "A launch that describes another job than the one that is meant: commands that start another number of processes than the "
        "sentence next to them says, whose nodes have ranks, addresses, ports, scripts or settings that do not fit each other, "
        "that start more processes than there are GPUs, whose script gives its processes ranks that repeat on every node, or that "
        "hand the script an argument which its parser refuses. Read are the script's own text, the documents of its project that "
        "start it (README, shell and batch scripts, manifests) and --launch."
    )
    rationale = (
        "Following the text gives a job of another size, or none: every rank sees another world size, so the accumulation, "
        "the batch of an update and the learning rate that goes with it are not those that were meant, or nodes wait for others "
        "that never come."
    )
    exceptions = (
        "A sentence that agrees in any reading: the number may be that of the whole job or that of each node. Ranges and "
        "variables (`1:4`, `gpu`, `$N`), sentences that hedge (`up to 8 GPUs`), plain python commands, nodes after an ellipsis or "
        "`the other nodes`, runs on CPU, localhost where the text says that it is one machine, and what this tool has written "
        "itself: trace folders, logs and reports."
    )
    trace_evidence = "The world size of the traced run, where it is the command's and not the sentence's."
    source = "torch.distributed.run: the world size is nnodes times nproc_per_node, both 1 where they are not given (torch 2.13)."
    outcome = "clean"
    fix_hint = "make the sentence and the command say the same number of processes"
    bad = '''"""Averages one number over all ranks.

On 2 processes of one machine:
    torchrun --standalone --nproc_per_node=3 average.py
"""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    value = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(value)
    print(value.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''
    good = bad.replace("--nproc_per_node=3", "--nproc_per_node=2")

    def check(self, context: Context) -> Iterable[Finding]:
        for claim, disagreeing in by_claim(starting_all(context.program, context.documented)):
            yield self._mismatch(context, claim, disagreeing)
        named = [context.launch] if context.launch is not None and starts(context.launch, context.program.entry) else []
        launches = [*context.documented, *named]
        taken: set[Span] = set()
        for fault in faults_of(context, launches):
            span = _place(context, fault, taken)
            taken.add(span)
            yield self._fault(span, fault)
        for setting in (
            *environment_faults(context.program),
            *local_addresses(context.program, launches),
            *rank_faults(context.program, launches),
        ):
            yield self.finding(
                setting.span, setting.message, setting.why, severity=setting.severity, confidence=setting.confidence,
                fix=Fix("display-only", setting.remedy),
            )  # fmt: skip

    def _fault(self, span: Span, fault: Fault) -> Finding:
        others = fault.launches[1:]
        related = [Related(one.path, one.line, "launch", one.text) for one in others if one.path is not None and one.line]
        related += [Related(*place) for place in fault.others]
        return self.finding(
            span, fault.message, fault.why, related=related, severity=fault.severity, confidence=fault.confidence,
            fix=Fix("display-only", fault.remedy), cause=f"{fault.kind}: {fault.message}",
        )  # fmt: skip

    def _mismatch(self, context: Context, claim: ProseClaim, launches: list[tuple[Launch, str]]) -> Finding:
        first, reason = launches[0]
        path = first.path or context.program.entry
        last_line = max(launch.end_line or claim.line for launch, _ in launches)
        lines = context.lines(path)
        end = len(lines[last_line - 1]) + 1 if 0 < last_line <= len(lines) else 1
        start = len(lines[claim.line - 1]) - len(lines[claim.line - 1].lstrip()) + 1 if 0 < claim.line <= len(lines) else 1
        places = " and ".join(str(launch.line) for launch, _ in launches)
        plural = len(launches) > 1
        commands = f"the command{'s' if plural else ''} of line{'s' if plural else ''} {places}"
        message = f"{reason[:1].upper()}{reason[1:]}, but {commands} start{'' if plural else 's'} {first.describe_world()}."
        came = f" ({first.origin('nnodes')}; {first.origin('nproc_per_node')})" if first.origins else ""
        explanation = (
            f"The sentence is: {claim.text!r} Taken as written, every rank sees a world size of {first.world_size}{came}; what the "
            "script divides by the world size follows that number and not the sentence. If the number is that of each node, "
            "or counts something else than processes, the sentence should say so."
        )
        related = [Related(path, launch.line or claim.line, "launch", launch.text) for launch, _ in launches]
        return self.finding(Span(path, claim.line, start, last_line, end), message, explanation, related=related)


def _place(context: Context, fault: Fault, taken: set[Span]) -> Span:
    """The option that a fault is about, where it stands in the command's own lines, else the command."""
    launch = fault.launches[0]
    if launch.path is None:
        return Span(context.program.entry, 1, 1 + len(taken), 1, 1 + len(taken))
    span = launch_span(context, launch)
    option = launch.origin(fault.about).split(", with")[0].split(" in ")[0]
    for number in range(span.line, span.end_line + 1) if option.startswith("-") else ():
        column = context.lines(span.path)[number - 1].find(option) + 1
        narrow = Span(span.path, number, column, number, column + len(option))
        if column and narrow not in taken:
            return narrow
    while span in taken:
        span = replace(span, column=span.column + 1)
    return span
