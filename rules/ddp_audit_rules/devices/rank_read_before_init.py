"""DDP608: a rank or world size is read before there is a process group, and used when there is one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import Init

if TYPE_CHECKING:
    from ddp_audit.explore.exact.early import Read


class RankReadBeforeInit(Rule):
    code = "DDP608"
    name = "rank-read-before-init"
    level = "error"
    summary = (
        "A rank or a world size that is read before `init_process_group`, from code that falls back to 0 and 1 without a process "
        "group, and that is used after it."
    )
    rationale = (
        "The fallback is right for one process. Here every process keeps it: each one takes itself for rank 0 of 1. All ranks "
        "read the same data, use the same seed, or write the same files, and nothing fails."
    )
    exceptions = (
        "A number that is read again after `init_process_group`; one that is used before it only, or only printed; numbers that "
        "come from the environment of the launcher, which are right from the start; scripts that make no process group; code "
        "that the predicted run does not reach."
    )
    trace_evidence = "Nothing that a trace holds: it has no values of variables. Batches that ranks share show one effect of it."
    source = (
        "torch 2.13, distributed/distributed_c10d.py: get_rank and get_world_size raise without a process group, so helpers ask "
        "is_initialized first. Seen in runs with gloo: both ranks of two go through all 64 samples."
    )
    fix_hint = "call init_process_group first, or ask for the rank where it is used"
    outcome = "shows rank 0 of 1 goes through 64 samples; same-samples"
    bad = '''"""Makes its data set, which asks for the rank, before there is a process group."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def rank_and_world_size():
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


class Shard:
    def __init__(self):
        self.rank, self.world_size = rank_and_world_size()

    def indices(self):
        return [i for i in range(64) if i % self.world_size == self.rank]


shard = Shard()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, len(shard.indices()), 8):
    x = torch.tensor(shard.indices()[i : i + 8], dtype=torch.float32).unsqueeze(1) / 64
    optimizer.zero_grad()
    (model(x) - x).pow(2).mean().backward()
    optimizer.step()
print(f"rank {shard.rank} of {shard.world_size} goes through {len(shard.indices())} samples", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace("before there is a process group", "when there is a process group").replace(
        'shard = Shard()\ndist.init_process_group("gloo")\n', 'dist.init_process_group("gloo")\nshard = Shard()\n'
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not program.executed or not program.has(Init):
            return
        predicted = context.exploration.predicted()
        seen: set[tuple[str, int]] = set()
        for read, use in predicted.run.early_uses.items() if predicted is not None else ():
            if (read.path, read.line) not in seen:
                seen.add((read.path, read.line))
                yield self._finding(context, read, use)

    def _finding(self, context: Context, read: Read, use: tuple[str, int]) -> Finding:
        asked = f"`{read.helper}` is called" if read.helper else "The rank or world size is read"
        message = f"{asked} before init_process_group, and every rank keeps the fallback: the number of a single process."
        explanation = (
            "The process group does not exist yet, so the numbers are those of a single process. They are used after the group "
            f"was made, in {use[0]}:{use[1]}, where each rank has another one."
        )
        related = [Related(use[0], use[1], "use", "uses the number that was read too early")]
        init = next(context.program.of(Init))
        related.append(Related(init.span.path, init.span.line, "init", "makes the process group"))
        lines = context.lines(read.path)
        text = lines[read.line - 1] if 0 < read.line <= len(lines) else ""
        start = len(text) - len(text.lstrip()) + 1
        span = Span(read.path, read.line, start, read.line, max(start, len(text.rstrip()) + 1))
        return self.finding(span, message, explanation, related=related)
