"""DDP304: every rank reads the whole stream."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node
from ddp_audit.tree.questions import Pass, speaks_of, training_passes
from ddp_audit.tree.values import ClassInfo, Obj, Value, options
from ddp_audit_rules.data._iterables import is_divided, stream_of
from ddp_audit_rules.data._unshared import trained_forward, training_places
from ddp_audit_rules.facts.evidence import by_trained_batches


class IterableNotSharded(Rule):
    code = "DDP304"
    name = "iterable-not-sharded"
    level = "warning"
    summary = (
        "A loader over an iterable data set that trains a DDP model, where nothing in the data set, its arguments or the loop "
        "knows the rank; one that divides its stream by worker alone counts too."
    )
    rationale = (
        "No sampler stands before an iterable data set, so each rank reads the stream from its beginning. All ranks have the "
        "same batches in each step, and the average of their gradients is that of one: W processes do the work of one. The "
        "number of a worker is the same on every rank and does not help."
    )
    exceptions = (
        "A data set whose class, arguments or files speak of rank, world size or shards; streams that draw at random, unless the "
        "number of the item is the seed; split_dataset_by_node, webdataset's split_by_node and their like; batches that are "
        "skipped or cut by rank; frameworks that shard or dispatch; streams that could not be followed."
    )
    trace_evidence = "Two replicas have the same batches one after the other."
    source = (
        "torch 2.13, utils/data/dataloader.py: an iterable data set takes no sampler, and is copied into each worker whole. "
        "Seen in runs: every rank, and every worker, yields everything."
    )
    fix_hint = (
        "take every item whose number modulo (ranks * workers) is rank * workers + worker, or split_dataset_by_node(data, "
        "rank, world_size), and see that all ranks get equally many batches"
    )
    outcome = "same-samples"
    bad = '''"""Fits a line to a stream of 32 points that every rank reads from its beginning."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Points(IterableDataset):
    def __init__(self, first=0, step=1):
        self.first, self.step = first, step

    def __iter__(self):
        for number in range(self.first, 32, self.step):
            yield torch.tensor([number / 32])


dist.init_process_group("gloo")
try:
    loader = DataLoader(Points(), batch_size=4)
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("that every rank reads from its beginning", "so that each rank reads its part").replace(
        "DataLoader(Points()", "DataLoader(Points(dist.get_rank(), dist.get_world_size())"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.loads_for_user:
            return
        seen: set[object] = set()
        for one in training_passes(program):
            if one.made is None or one.made.span in seen or "dataset" not in one.made.args:
                continue
            stream = next((s for s in map(stream_of, options(one.made.args["dataset"])) if s is not None), None)
            forward = trained_forward(program, one)
            if stream is not None and forward is not None and not is_divided(program, one, stream):
                seen.add(one.made.span)
                yield self._finding(one, one.made, stream, forward)

    def _finding(self, one: Pass, loader: Node, stream: Value, forward: Node) -> Finding:
        name = stream.cls.name if isinstance(stream, Obj) and isinstance(stream.cls, ClassInfo) else stream.text or "the stream"
        workers = isinstance(stream, Obj) and isinstance(stream.cls, ClassInfo) and speaks_of(stream.cls, "get_worker_info")
        by = "is divided by worker and not by rank" if workers else "knows nothing of the rank"
        message = f"`{name}` {by}, so every rank reads the same stream and trains on the same batches as the others."
        explanation = (
            "DDP averages gradients; it does not touch the data, and a loader has no sampler for an iterable data set. With equal "
            "batches the average over the ranks is the gradient of one rank, so the other processes add nothing. It would be right "
            "if the source itself gave each process other items, as a queue does; that could not be seen here."
        )
        related = training_places(one, forward)
        if isinstance(stream, Obj) and stream.made is not None:
            related.append(Related(stream.made.path, stream.made.line, "data", "the stream, whole on each rank"))
        return self.finding(loader.span, message, explanation, related=related + guard_relations(loader), guards=loader.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where two ranks had an equal batch at the loop or forward; not-observed where two had batches, none equal."""
        return by_trained_batches(finding, run)
