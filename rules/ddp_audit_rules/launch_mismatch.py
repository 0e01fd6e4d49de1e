"""DDP504: a documented launch command starts another number of processes than the sentence beside it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.launch.model import Launch, ProseClaim
from ddp_audit.launch.prose import disagreement
from ddp_audit.rule import Context, Rule


class LaunchMismatch(Rule):
    code = "DDP504"
    name = "launch-mismatch"
    level = "warning"
    what = (
        "A documented launch command (docstring, comment) that starts another number of processes, or uses another number of "
        "nodes, than the sentence beside it says."
    )
    why = (
        "Whoever follows the text gets a job of another size: every rank sees another world size, so the accumulation, the "
        "batch of an update and the learning rate that goes with it are not those that were meant, or the job waits for "
        "nodes that never come."
    )
    quiet = (
        "A sentence of which any reading agrees: the number may be that of the whole job or that of each node. Ranges and "
        "variables (`1:4`, `gpu`, `$N`), sentences that hedge (`up to 8 GPUs`), and plain python commands, whose script may "
        "start processes itself."
    )
    confirmed = "The world size of the traced run, where it is the command's and not the sentence's."
    source = "torch.distributed.run: the world size is nnodes times nproc_per_node, both 1 where they are not given (torch 2.13)."
    remedy = "make the sentence and the command say the same number of processes"
    outcome = "clean"
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
        for claim, launches in _by_claim(context.documented):
            yield self._mismatch(context, claim, launches)

    def _mismatch(self, context: Context, claim: ProseClaim, launches: list[tuple[Launch, str]]) -> Finding:
        first, reason = launches[0]
        path = first.path or context.program.entry
        last_line = max(launch.end_line or claim.line for launch, _ in launches)
        lines = context.program.sources.get(path, [])
        end = len(lines[last_line - 1]) + 1 if 0 < last_line <= len(lines) else 1
        start = len(lines[claim.line - 1]) - len(lines[claim.line - 1].lstrip()) + 1 if 0 < claim.line <= len(lines) else 1
        places = " and ".join(str(launch.line) for launch, _ in launches)
        plural = len(launches) > 1
        commands = f"the command{'s' if plural else ''} of line{'s' if plural else ''} {places}"
        message = f"{reason[:1].upper()}{reason[1:]}, but {commands} start{'' if plural else 's'} {first.describe_world()}."
        explanation = (
            f"The sentence is: {claim.text!r} Taken as written, every rank sees a world size of {first.world_size}; what the "
            "script divides by the world size follows that number and not the sentence. If the number is that of each node, "
            "or counts something else than processes, the sentence should say so."
        )
        related = [Related(path, launch.line or claim.line, "launch", launch.text) for launch, _ in launches]
        return self.finding(Span(path, claim.line, start, last_line, end), message, explanation, related=related)


def _by_claim(documented: Iterable[Launch]) -> Iterator[tuple[ProseClaim, list[tuple[Launch, str]]]]:
    """The launches that disagree with their sentence, by sentence: those of one job share one."""
    groups: dict[tuple[str | None, int], list[tuple[Launch, str]]] = {}
    for launch in documented:
        reason = disagreement(launch)
        if reason is not None and launch.prose is not None:
            groups.setdefault((launch.path, launch.prose.line), []).append((launch, reason))
    for launches in groups.values():
        claim = launches[0][0].prose
        assert claim is not None
        yield claim, launches
