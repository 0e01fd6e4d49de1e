"""DDP305: data is divided between the ranks twice."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node
from ddp_audit_rules.data._second_divisions import second_divisions
from ddp_audit_rules.facts.evidence import samples_alone


class ShardedTwice(Rule):
    code = "DDP305"
    name = "sharded-twice"
    level = "error"
    summary = (
        "Data that each rank has a part of already is divided by rank once more: by a DistributedSampler over the rank's own "
        "part, by a loop that skips other ranks' batches, or by a framework that shards every loader it is given."
    )
    rationale = (
        "Each rank trains on one part in W of its part in W. With two ranks half of the data is never seen, with eight seven "
        "eighths; an epoch is over W times sooner, and the loss looks as it always does."
    )
    exceptions = (
        "One division only; a sampler that divides among the ranks of one node what the nodes divided; `prepare()` that is not "
        "given the loader; Lightning and Fabric where they are given a DistributedSampler, which they leave alone, or are "
        "configured not to insert one; data sets that take the rank for something else."
    )
    trace_evidence = (
        "Nothing that a trace holds by itself: it does not know how large the data set is. A short epoch of the sampler shows it."
    )
    source = (
        "torch 2.13, utils/data/distributed.py: a sampler divides the indices of the data set that it is given. Seen in a run: "
        "Accelerate shards a loader again that has a DistributedSampler. Lightning 2.6 puts a DistributedSampler into each "
        "loader over a map-style data set that has no sampler."
    )
    fix_hint = (
        "leave the division to one: drop the sampler (or the shard) where a framework shards, and give a sampler the whole data set"
    )
    outcome = "shows the ranks trained on 16 of 64 points"
    bad = '''"""Fits a line to 64 points; each rank takes every other one, and a sampler takes every other one of those."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
try:
    points = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    part = Subset(points, range(rank, 64, world_size))
    sampler = DistributedSampler(part)
    loader = DataLoader(part, batch_size=4, sampler=sampler)
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = set()
    for (x,) in loader:
        seen |= set(x.flatten().mul(64).int().tolist())
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    everywhere = [None] * world_size
    dist.all_gather_object(everywhere, seen)
    print(f"the ranks trained on {len(set().union(*everywhere)) // 2} of 64 points", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = (
        bad.replace(
            "each rank takes every other one, and a sampler takes every other one of those", "a sampler gives each rank its part"
        )
        .replace("    part = Subset(points, range(rank, 64, world_size))\n", "")
        .replace("(part", "(points")
        .replace("DistributedSampler, Subset,", "DistributedSampler,")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        seen: set[object] = set()
        for node, message, first in second_divisions(context.program):
            if node.span not in seen:
                seen.add(node.span)
                yield self._finding(node, message, first)

    def _finding(self, node: Node, message: str, first: list[Related]) -> Finding:
        explanation = (
            "Nothing fails and the loss falls as usual; the epoch is W times shorter than it should be, and most of the data is "
            "never seen. Compare len(loader) * batch_size * W with the size of the data set."
        )
        return self.finding(node.span, message, explanation, related=[*first, *guard_relations(node)], guards=node.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """A sampler that began on one rank alone divides nothing; how large the data was, a trace does not say."""
        return "not-observed" if samples_alone(run, finding) else "not-exercised"
