"""DDP208: a buffer is used while an asynchronous collective or message may still be at work on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import EarlyUse, Guard, NewGroup, Node, PointToPoint, Program, Wait
from ddp_audit.tree.questions import first_of_each_place, says
from ddp_audit_rules.facts.recorded_uses import used_before_wait

_CALL = "collective"  # role of the asynchronous call
_OF_HANDLES = ("wait", "None", "handle", "work", "req", "async")  # conditions that ask whether there is anything to wait for


class AsyncResultBeforeWait(Rule):
    code = "DDP208"
    name = "async-result-before-wait"
    level = "error"
    summary = (
        "A buffer that was given to a collective with async_op=True, to isend or to irecv, and that is read, scaled or written "
        "before anything waits for that operation."
    )
    rationale = (
        "The operation runs concurrently with the program. What is read before wait() is the rank's own value, the result, or a "
        "mixture; what is written mixes into the result of all ranks. Nothing fails, and it may work while the peers are fast."
    )
    exceptions = (
        "Handles that are kept and waited for in a loop or another function, a buffer that is only sent and only read, facts and "
        "views of a buffer (shape, chunks), async_op that is an option, torch.cuda.synchronize(), and buffers without a name."
    )
    trace_evidence = (
        "A wait behind the use, in the same function, found the collective still at work, so the buffer was used before it was "
        "there. Messages, overlapping collectives and CUDA tensors are not judged."
    )
    source = (
        "torch 2.13, distributed/distributed_c10d.py (async_op returns a Work); seen in runs with gloo: 80 MB that are halved "
        "before the wait come out half summed and half not."
    )
    fix_hint = "keep the handle and call `.wait()` before the first use of the buffer"
    outcome = "shows sum 1.0 on rank 0"
    bad = '''"""Counts the samples of all ranks with an asynchronous sum, and reads the sum before it is there."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
if rank == 1:
    time.sleep(0.5)  # one rank is later than the others
count = torch.ones(1)
work = dist.all_reduce(count, async_op=True)
print(f"sum {count.item()} on rank {rank}", flush=True)
work.wait()
dist.destroy_process_group()
'''
    good = bad.replace("and reads the sum before it is there", "and waits for it").replace(
        'print(f"sum {count.item()} on rank {rank}", flush=True)\nwork.wait()\n',
        'work.wait()\nprint(f"sum {count.item()} on rank {rank}", flush=True)\n',
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of(EarlyUse)):
            waits = list(_waits_before(program, node)) if node.sometimes else []
            condition = _without(program, node, waits)
            if not waits or condition is not None:
                yield self._finding(program, node, condition)

    def _finding(self, program: Program, node: EarlyUse, condition: Guard | None) -> Finding:
        op, name, write = node.op, node.name, node.write
        started = node.object.made if node.object is not None else None
        where = f" of line {started.line}" if started is not None else ""
        verb = "written" if write else "read"
        when = "" if condition is None else f" where not ({condition.text})" if condition.polarity else f" where {condition.text}"
        message = f"`{name}` is {verb} here{when} while the asynchronous {op}{where} may still run; nothing has waited for it."
        if write:
            explanation = (
                "What the other ranks get is the old value, the new one, or some of each; on this rank the result of the operation "
                "overwrites what is written here, or not."
            )
        else:
            explanation = (
                "What is read is this rank's own value, the result, or some of each, by how far the slowest rank is. It is right "
                "only on a rank that comes last, and with CUDA tensors not even there: the operation has a stream of its own."
            )
        related = guard_relations(node)
        if started is not None:
            related.insert(0, Related(started.path, started.line, _CALL, program.line(started.path, started.line)))
        if condition is not None:
            related.append(Related(condition.span.path, condition.span.line, "guard", f"it is waited for under: {condition.text}"))
        severity = "warning" if condition is not None else None
        fix = Fix(_safety(program, node), self.fix_hint) if started is not None and started.path == node.span.path else None
        return self.finding(node.span, message, explanation, related=related, severity=severity, guards=node.guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the waits that found their collective still at work."""
        return used_before_wait(finding, run)


def _safety(program: Program, use: EarlyUse) -> str:
    """Safe where a wait ends as soon as all ranks have started the operation, because nothing can keep them from it."""
    issued = use.issued
    by_all = issued is not None and not program.node(issued).rank_guards
    return "safe" if by_all and not program.has(PointToPoint, NewGroup) else "unsafe"


def _waits_before(program: Program, use: EarlyUse) -> Iterator[Node]:
    """Waits between an asynchronous call and a use, for its handle or for one that is not known."""
    issued = use.issued
    for wait in program.of(Wait):
        other = wait.object is not None and use.object is not None and wait.object.key != use.object.key
        if not other and wait.number < use.number and (issued is None or wait.number > issued):
            yield wait


def _without(program: Program, use: EarlyUse, waits: Sequence[Node]) -> Guard | None:
    """The condition without which nothing has waited, where neither the use nor the call stands under it."""
    issued = use.issued
    known = [*use.guards, *(program.node(issued).guards if issued is not None else ())]
    held = {(g.text, g.polarity) for g in known}
    condition = None
    for wait in waits:
        own = [g for g in wait.guards if (g.text, g.polarity) not in held and g.via in ("if", "ifexp", "early-exit")]
        if not own or any(says(g.text, "handle") for g in own):
            return None
        condition = own[0]
    return condition
