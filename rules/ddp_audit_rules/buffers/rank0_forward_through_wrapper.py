"""DDP401: a forward through the wrapper that only some ranks make, where the model has buffers to broadcast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import DDP_BUFFERS, FORWARD, SYNC_BATCHNORM
from ddp_audit.explore.alone import REBUILD, Lone, lone_forward
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import BufferSite, Forward, Node, Program
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit_rules.buffers._lone_forwards import buffer_text, what_breaks, what_comes, where_buffers
from ddp_audit_rules.buffers._rank_forwards import (
    all_replicas_call,
    never_sends,
    only_some_ranks,
    others_forward_too,
    through_module,
)
from ddp_audit_rules.facts.parted import has_diverged, members
from ddp_audit_rules.facts.training import wrap_behind

_MOST_STOPPED = 8  # forwards behind which the next one is looked for: each costs a run


class Rank0ForwardThroughWrapper(Rule):
    code = "DDP401"
    name = "rank0-forward-through-wrapper"
    level = "error"
    summary = (
        "A call of the DDP wrapper that only some ranks reach (an evaluation or a sample on rank 0, as a rule), where the "
        "wrapped model registers buffers."
    )
    rationale = (
        "The wrapper broadcasts the model's buffers from rank 0 at the start of a forward that follows a synchronised one. A "
        "rank that makes such a forward alone waits for partners. Under no_grad the broadcast often pairs with the other "
        "ranks' next training forward, and the run goes on by luck. It hangs or aborts where another collective comes first, "
        "where gradients are on, where no training forward follows, or where the lone forward falls between the first and "
        "the second optimizer step, in which DDP rebuilds its buckets."
    )
    exceptions = (
        "Models without buffers, `broadcast_buffers=False` or `forward_sync_buffers=False` (nothing is sent), a forward "
        "through `.module`, an evaluation that all ranks make, or all members of the wrapper's own group, and models whose class "
        "could not be followed."
    )
    trace_evidence = "A DDP buffer broadcast issued at this line by some ranks and not by the others."
    source = (
        "torch 2.13, nn/parallel/distributed.py: _pre_forward calls _sync_buffers where will_sync_module_buffers() says so, "
        "whatever the gradient mode; require_forward_param_sync is set by every forward. Seen in runs with gloo on two ranks."
    )
    fix_hint = "evaluate through `.module` on rank 0, or let every rank evaluate its share and all-reduce the sums"
    of_sequences = True
    outcome = "hang all"
    bad = '''"""Rank 0 evaluates through the wrapper, then all ranks meet in a barrier: rank 0 is still in its buffer broadcast."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        with torch.no_grad():
            print("validation", model(torch.randn(8, 4)).mean().item(), flush=True)
    dist.barrier()
print("done", flush=True)
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 0 evaluates through the wrapper, then all ranks meet in a barrier: rank 0 is still in its buffer broadcast.",
        "Rank 0 evaluates through the inner module, which sends nothing.",
    ).replace('"validation", model(', '"validation", model.module(')

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        lone = [n for n in program.of(Forward) if n.through == "wrapper" and only_some_ranks(n)]
        pending = list(first_of_each_place(lone))
        stopped: list[Forward] = []
        while pending:  # a forward that stops the ranks hides what comes of the others
            hidden, known = [], len(stopped)
            for node in pending:
                found = self._at(context, node, stopped)
                if found is None:
                    hidden.append(node)
                else:
                    yield found
            if len(stopped) in (known, _MOST_STOPPED):
                return
            pending = hidden

    def _at(self, context: Context, node: Forward, stopped: list[Forward]) -> Finding | None:
        """What is wrong with one forward where those that `stopped` the ranks send nothing; it may become one of them."""
        program, wrap = context.program, wrap_behind(context.program, node)
        if wrap is None or never_sends(wrap) or all_replicas_call(node, wrap):
            return None
        buffers = program.buffers_of(wrap)
        if not buffers or others_forward_too(program, node):
            return None
        every = lone_forward(context.exploration, node, stopped)
        times = [time for time in every if time.goes_on or time.is_cause]
        if not any(time.sent for time in times):
            return None
        if len(stopped) < _MOST_STOPPED and not all(time.goes_on for time in times):
            stopped.append(node)
        return self._finding(program, node, wrap, buffers, times, stops_anyway=len(times) < len(every))

    def _finding(
        self, program: Program, node: Node, wrap: Node, buffers: list[BufferSite], times: list[Lone], *, stops_anyway: bool
    ) -> Finding:
        stops = [time for time in times if not time.goes_on]
        surely = (len(stops) == len(times) and not stops_anyway) or any(time.when != REBUILD for time in stops)
        conditional = all(buffer.guards for buffer in buffers)
        guard = next(g for g in node.guards if g.taint)
        who = guard.ranks().removeprefix("only ")
        ends = " or ".join(sorted({time.prediction.outcome.kind.removesuffix("s") for time in stops}))
        what = "pairs with the other ranks' next training forward"
        if surely:
            what = f"makes the run {ends}"
        elif stops:
            what += f" or makes the run {ends}"
        message = (
            f"Only {who} {'calls' if 'rank ' in who else 'call'} the DDP wrapper here; its buffer broadcast "
            f"{'(if the model has buffers) ' if conditional else ''}{what}."
        )
        related = guard_relations(node)
        related.append(Related(wrap.span.path, wrap.span.line, "wrap", "the DDP wrapper that is called"))
        related += [Related(b.span.path, b.span.line, "buffer", buffer_text(b)) for b in buffers[:3]]
        explanation = " ".join((*where_buffers(buffers), *what_comes(node, times), *what_breaks(program, node, times)))
        return self.finding(
            node.span, message, explanation, related=list(dict.fromkeys(related)), guards=(*node.guards, *buffers[0].guards),
            severity="error" if surely and not conditional else "warning", fix=through_module(program, node, wrap),
        )  # fmt: skip

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where a collective of the forward at this line was met by none, or by another one, of a rank of its group."""
        seen = run.events_at(finding.span.path, finding.span.line, finding.span.end_line)
        sent: dict[str, Counter[int]] = {}
        for rank, event in seen:
            if event.origin in (DDP_BUFFERS, SYNC_BATCHNORM):
                sent.setdefault(event.group, Counter())[rank] += 1
        counts = [{rank: found[rank] for rank in members(run, group)} for group, found in sent.items()]
        if any(0 in by_rank.values() for by_rank in counts) and has_diverged(run):
            return "confirmed"
        forwards = any(event.kind == FORWARD for _, event in seen)
        return "not-observed" if forwards or counts else "not-exercised"
