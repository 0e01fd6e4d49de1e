"""DDP403: what each rank keeps in a buffer is replaced by rank 0's."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE, DDP_BUFFERS, FORWARD
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, BufferWrite, Node, Wrap
from ddp_audit.tree.values import Obj, constant, options

_SWITCHES = ("broadcast_buffers", "forward_sync_buffers")


class BufferSemantics(Rule):
    code = "DDP403"
    name = "buffer-semantics"
    level = "info"
    summary = (
        "A module in a DDP model whose forward fills a buffer of its own with what it computes from the rank's batch: a queue, "
        "a memory, a running statistic; said once for a script, where the buffer is filled."
    )
    rationale = (
        "DDP sends the buffers of rank 0 to all ranks at the start of the next synchronised forward. What the other ranks "
        "wrote is lost, without a word: a queue holds samples of rank 0 alone, a running statistic is that of one rank's data."
    )
    exceptions = (
        "Classes that gather or reduce before they write; counters, tables and all that is the same on every rank; buffers of "
        "library layers (BatchNorm has a rule of its own); the broadcast of buffers switched off, which is what one does to "
        "keep them apart; writes outside of the forward; models that are not trained, or could not be followed into."
    )
    trace_evidence = "Buffers are broadcast in a forward after the first, so that what was written before is replaced."
    source = (
        "torch 2.13, nn/parallel/distributed.py: _sync_module_buffers sends all buffers from rank 0 before the forward. Seen "
        "in runs on two ranks: rank 1 finds in its buffer what rank 0 wrote."
    )
    fix_hint = (
        "gather (or all-reduce) what is written, so that all ranks write the same; or keep it in a plain attribute, or wrap "
        "with forward_sync_buffers=False (broadcast_buffers=False before torch 2.13), where each rank is to keep its own"
    )
    outcome = "shows rank 1 finds what rank 0 wrote: True"
    bad = '''"""Keeps the mean of the last batch in a buffer; rank 1 finds that of rank 0 there."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x):
        self.found = self.last.tolist()
        self.last.copy_(x.mean(0))
        return self.linear(x - self.last)


dist.init_process_group("gloo")
try:
    rank = dist.get_rank()
    net = Memory()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model(torch.full((4, 2), 10.0 * rank + step)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 1:
        print(f"rank 1 finds what rank 0 wrote: {net.found == [0.0, 0.0]}", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("rank 1 finds that of rank 0 there", "each rank keeps its own").replace(
        "DDP(net)", "DDP(net, forward_sync_buffers=False)"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.shards_loaders:
            return
        trained = {f.object.key for b in program.of(Backward) for f in program.forwards_of(b.target) if f.object is not None}
        for wrap in program.of(Wrap):
            given = [wrap.args[name] for name in _SWITCHES if name in wrap.args]
            off = "**" in wrap.args or any(constant(value) is not True for value in given)
            if wrap.object is None or wrap.object.key not in trained or off:
                continue
            modules = [o for o in options(wrap.args["module"]) if isinstance(o, Obj)] if "module" in wrap.args else []
            writes = [write for module in modules for write in program.buffer_writes.get(module.key, [])]
            if writes:
                yield self._finding(wrap, writes[0], len({write.name for write in writes}) - 1)
                return

    def _finding(self, wrap: Node, write: BufferWrite, others: int) -> Finding:
        more = f" (and {others} more)" if others else ""
        message = (
            f"`{write.owner}.{write.method}` fills the buffer `{write.name}`{more} from the rank's batch; DDP overwrites it with "
            "that of rank 0 before the next training forward."
        )
        explanation = (
            "Buffers are broadcast from rank 0 at the start of a forward. It is harmless where the value is a rough statistic and "
            "the ranks draw alike; it is not where the buffer is to hold something of each rank, or of all."
        )
        related = [Related(wrap.span.path, wrap.span.line, "wrap", "the wrapper that sends the buffers of rank 0")]
        return self.finding(write.span, message, explanation, related=related + guard_relations(wrap), guards=wrap.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the broadcasts of buffers after the first training forward of a rank."""
        forwards, broadcasts = 0, 0
        for rank in run.ranks.values():
            seen = 0
            for event in rank.events:
                seen += event.kind == FORWARD and bool(event.detail.get("grad"))
                broadcasts += seen > 1 and event.kind == COLLECTIVE and event.origin == DDP_BUFFERS
            forwards = max(forwards, seen)
        if run.world_size < 2 or forwards < 2:
            return "not-exercised"
        return "confirmed" if broadcasts else "not-observed"
