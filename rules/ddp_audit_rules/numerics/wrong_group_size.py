"""DDP807: a loss is scaled by the world size where the wrapper averages over a smaller group."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.factors import is_near
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FACTOR
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, Collective, Node, Program
from ddp_audit.tree.questions import first_of_each_place, group_of, is_default, loss_of, scales_by_hand, trained_by_ddp
from ddp_audit.tree.values import Value, behind
from ddp_audit_rules.facts.evidence import looks_at
from ddp_audit_rules.facts.part_groups import is_part_of_job
from ddp_audit_rules.facts.parted import replicas
from ddp_audit_rules.facts.training import wrap_behind


class WrongGroupSize(Rule):
    code = "DDP807"
    name = "wrong-group-size"
    level = "warning"
    summary = (
        "A loss that is multiplied by the world size before its backward, where the DDP wrapper has a process_group of its own "
        "that holds only a part of the ranks."
    )
    rationale = (
        "The factor is there to undo DDP's division, and DDP divides by the size of its own group. With tensor or pipeline "
        "parallelism that group is smaller than the job, so the gradient is too large by the number of ranks that share a replica. "
        "The loss looks right, and the learning rate, clipping and weight decay mean something else on every layout."
    )
    exceptions = (
        "A wrapper without a group of its own, or with one of all ranks; a factor that is the size of the group "
        "(`dist.get_world_size(group)`); a count that was summed over all ranks of the job, in which each replica counts as often "
        "as it has ranks; gradients that the program scales itself."
    )
    trace_evidence = (
        "The loss of this line was multiplied by the number of all ranks, and its wrapper averaged over fewer. A trace has single "
        "numbers that a loss is multiplied by: a scale that is made of several (`world_size / count`) tells nothing."
    )
    source = (
        "torch 2.13, nn/parallel/distributed.py: the reducer divides by process_group.size(). Seen in runs with gloo: with two "
        "groups of one rank the gradient is twice that of one process, with two of two ranks as well."
    )
    fix_hint = "multiply by the size of the wrapper's group (`dist.get_world_size(group)`)"
    outcome = "shows 2.0 times the gradient"
    bad = '''"""Two ranks share one replica, as in tensor parallelism, and the loss is scaled by the number of all ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
for first in range(2):
    group = dist.new_group(range(first, world_size, 2))
    if rank % 2 == first:
        replicas = group
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1), process_group=replicas)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(8, 4)
    count = torch.tensor([8.0])
    dist.all_reduce(count, group=replicas)
    loss = model(x).pow(2).sum() * world_size / count
    optimizer.zero_grad()
    loss.backward()
    alone = torch.autograd.grad(model.module(x).pow(2).mean(), model.module.weight)[0]
    print(f"{(model.module.weight.grad / alone).mean():.1f} times the gradient", flush=True)
    optimizer.step()
dist.destroy_process_group()
'''
    good = bad.replace("the number of all ranks", "the number of replicas").replace(
        "* world_size / count", "* dist.get_world_size(replicas) / count"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if scales_by_hand(program):
            return
        for node in first_of_each_place(program.of(Backward)):
            wrap = self._part_wrap(program, node) if trained_by_ddp(program, node) else None
            loss = None if wrap is None else loss_of(node.target, program)
            if wrap is None or loss is None or loss.worlds <= 0:
                continue
            if not any(_counts_all_ranks(program, node, divisor) for divisor in loss.divisors):
                yield self._finding(node, wrap)

    def _part_wrap(self, program: Program, node: Node) -> Node | None:
        """The constructor call of a wrapper behind a loss whose group holds a part of the ranks."""
        for forward in program.forwards_of(node.target):
            wrap = wrap_behind(program, forward)
            if wrap is not None and is_part_of_job(group_of(wrap)):
                return wrap
        return None

    def _finding(self, node: Node, wrap: Node) -> Finding:
        message = (
            f"The loss is multiplied by the world size, but the wrapper of line {wrap.span.line} averages over a smaller group, so "
            "the gradients are too large."
        )
        explanation = (
            "DDP divides the summed gradients by the size of its process group: the factor that stays is the number of ranks that "
            "share a replica. All ranks are wrong alike, and with one rank for "
            "each replica the two sizes are equal."
        )
        related = [Related(wrap.span.path, wrap.span.line, "wrap", wrap.text), *guard_relations(node)]
        confidence = "likely" if node.is_called else "possible"
        return self.finding(node.span, message, explanation, related=related, confidence=confidence, guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the numbers that the losses of this line were multiplied by, and the ranks that their wrapper averaged over.

        Not observed where the ranks that wrapped a model with one group are all ranks, or where the number is that of the group.
        """
        world, known = len(run.ranks), replicas(run)
        if known and all(len(ranks) == world for ranks in known):
            return "not-observed"
        by_all, by_group = [], []
        for events in looks_at(run, FACTOR, finding.span).values():
            for detail in (event.detail for event in events):
                factors = [float(factor) for chain in detail.get("factors") or () for factor in chain]
                averaged = int(detail.get("replicas") or world)
                by_all.append(averaged < world and any(is_near(factor, world) for factor in factors))
                by_group.append(averaged < world and any(is_near(factor, averaged) for factor in factors))
        if by_all and all(by_all):
            return "confirmed"
        return "not-observed" if by_group and all(by_group) else "not-exercised"


def _counts_all_ranks(program: Program, backward: Node, divisor: Value) -> bool:
    """Whether a count was summed over all ranks of the job."""
    names = {value.text for value in behind(divisor) if value.text}
    return any(
        n.target is not None and n.target.text in names and _is_default_group(n)
        for n in program.of(Collective)
        if n.number < backward.number
    )


def _is_default_group(node: Collective) -> bool:
    """Whether a collective runs on all ranks."""
    group = group_of(node)
    return group is None or is_default(group)
