"""DDP805: a loss uses what all_gather brought, through which no gradient goes back, not even to the rank's own part."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, Collective, Node, Program
from ddp_audit.tree.questions import first_of_each_place, is_kind, trained_by_ddp
from ddp_audit.tree.values import Const, Unknown, Value, behind, operation_of


class GatherWithoutGradient(Rule):
    code = "DDP805"
    name = "gather-without-gradient"
    level = "warning"
    summary = (
        "Outputs of a DDP model that all ranks gather with torch.distributed.all_gather and use in the loss of the backward, "
        "with nothing that puts the rank's own part back."
    )
    rationale = (
        "all_gather copies into tensors that autograd knows nothing of. The gathered rows count as constants: no rank gets a "
        "gradient for its rows as negatives or targets of the others, nor for its own rows among them. A contrastive loss then "
        "trains on part of its gradient, and differs from that of one process with the whole batch."
    )
    exceptions = (
        "The rank's own part written back into the list or joined with the others; the gathers of torch.distributed.nn and "
        "other functions that autograd knows; labels, and outputs that were computed without gradients (queues, teachers); "
        "values that are only measured."
    )
    trace_evidence = (
        "Nothing that a run holds: autograd keeps nothing of what counted as a constant, and whether it was meant to is not in "
        "the values. It takes the gradient of one process with the whole batch."
    )
    source = (
        "Seen in runs with torch 2.13: tensors that all_gather wrote have requires_grad False; in the example the gradient is half "
        "of that of one process."
    )
    outcome = "shows gradient is 0.50 of that of one process"
    fix_hint = (
        "gather with `torch.distributed.nn.functional.all_gather`, or write the rank's own part back (`gathered[rank] = z`) "
        "and compute the whole loss on every rank"
    )
    bad = '''"""Compares each row with the rows of all ranks, through which no gradient goes back. Compares with one process."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
alone = torch.nn.Linear(4, 2, bias=False)
model = DDP(torch.nn.Linear(4, 2, bias=False))
model.module.load_state_dict(alone.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
whole = torch.randn(8 * world_size, 4)

z = model(whole[rank * 8 : (rank + 1) * 8])
gathered = [torch.zeros_like(z) for _ in range(world_size)]
dist.all_gather(gathered, z)
loss = (z @ torch.cat(gathered).T).mean()
loss.backward()

z = alone(whole)
(z @ z.T).mean().backward()
ratio = (model.module.weight.grad.norm() / alone.weight.grad.norm()).item()
optimizer.step()
if rank == 0:
    print(f"the gradient is {ratio:.2f} of that of one process", flush=True)
dist.destroy_process_group()
'''
    good = (
        bad.replace(
            "gathered = [torch.zeros_like(z) for _ in range(world_size)]\ndist.all_gather(gathered, z)\n",
            "gathered = torch.distributed.nn.functional.all_gather(z)\n",
        )
        .replace("import torch.distributed as dist\n", "import torch.distributed as dist\nimport torch.distributed.nn.functional\n")
        .replace("through which no gradient goes back", "and gradients go back to where they came from")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        reported: set[int] = set()
        for backward in first_of_each_place(program.of(Backward)):
            if backward.target is None or not trained_by_ddp(program, backward):
                continue
            for value in behind(backward.target, _carries_gradient):
                gather = _gather_of(program, value)
                if gather is not None and gather.number not in reported:
                    reported.add(gather.number)
                    yield self._finding(program, gather, backward, value)

    def _finding(self, program: Program, gather: Collective, backward: Node, value: Value) -> Finding:
        message = (
            f"No gradient flows back through this {gather.op}: the loss of line {backward.span.line} treats the rows "
            "of all ranks as constants, this rank's own included."
        )
        explanation = (
            "Nothing fails, for the rest of the loss still has a gradient. It is right where the gathered rows are meant to be "
            "constants."
        )
        related = [
            Related(n.span.path, n.span.line, "forward", "computes what is gathered") for n in program.forwards_of(_sent(value))[:1]
        ]
        related += [Related(backward.span.path, backward.span.line, "backward", backward.text), *guard_relations(gather)]
        return self.finding(gather.span, message, explanation, related=related, guards=gather.guards)


def _carries_gradient(value: Value) -> bool:
    """Whether to look no further: a gradient is cut on purpose here, or goes back to a part next to the gathered ones."""
    ends = is_kind(value, "ends-gradient") or operation_of(value) == "own part"
    return ends or (is_kind(value, "puts-together") and bool(value.deps))


def _sent(value: Value) -> Value | None:
    return value.by.args[1] if isinstance(value, Unknown) and value.by is not None and len(value.by.args) > 1 else None


def _gather_of(program: Program, value: Value) -> Collective | None:
    """The all_gather that wrote a value, where what was sent has a gradient."""
    if not isinstance(value, Unknown) or value.by is None or not value.by.name.startswith("all_gather"):
        return None
    sent, at = _sent(value), value.by.argument("at")
    if sent is None or not sent.deps or not isinstance(at, Const):
        return None
    where = at.value
    for node in program.of(Collective):
        if node.span.path == where.path and node.span.line <= where.line <= node.span.end_line and node.op == value.by.name:
            return node
    return None
