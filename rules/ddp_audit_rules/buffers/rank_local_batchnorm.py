"""DDP402: batch normalisation keeps to each rank's own batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ddp_audit.compare.peers import Groups
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE, STATISTICS, SYNC_BATCHNORM
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Backward, BufferSite, Collective, Program, Wrap
from ddp_audit.tree.questions import calls_with, hints_at, says
from ddp_audit.tree.values import constant


class RankLocalBatchnorm(Rule):
    code = "DDP402"
    name = "rank-local-batchnorm"
    level = "info"
    summary = (
        "A DDP model with BatchNorm layers that are not converted to SyncBatchNorm, whose statistics nothing averages or "
        "sends; said once for a script, where the model is wrapped."
    )
    rationale = (
        "BatchNorm normalises by the rank's own batch, which is W times smaller than the batch that the optimizer sees. The "
        "running statistics are the rank's own as well: DDP replaces them by those of rank 0 before the next training forward, "
        "so that after the last one they differ, and with the broadcast switched off they drift apart for good. Ranks that "
        "then evaluate the module measure different models, and a checkpoint of rank 0 holds what rank 0 saw."
    )
    exceptions = (
        "SyncBatchNorm; statistics that are averaged, broadcast or estimated again; layers without running statistics; frozen "
        "layers; other norms; models that could not be followed into; models that are not trained; frameworks with a switch for it."
    )
    trace_evidence = (
        "Ranks that evaluated with running statistics that differ and put their results together (the silent fault "
        "buffers-differ); equal statistics in all evaluations, and the collectives of SyncBatchNorm, show that it is fixed."
    )
    source = (
        "torch 2.13, nn/modules/batchnorm.py, nn/parallel/distributed.py: buffers are broadcast at the start of a forward. "
        "Seen in runs on two ranks: after the last training forward running means differ between ranks."
    )
    fix_hint = (
        "call SyncBatchNorm.convert_sync_batchnorm(model) before DDP(model) where the batch of a rank is small; or average the "
        "running statistics over the ranks before evaluating and saving"
    )
    outcome = "buffers-differ"
    bad = '''"""Fits a line behind a BatchNorm; each rank keeps the statistics of its own half of the points."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
try:
    points = TensorDataset(torch.arange(64.0).reshape(32, 2))
    sampler = DistributedSampler(points, shuffle=False)
    loader = DataLoader(points, batch_size=4, sampler=sampler)
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {dist.get_rank()} normalises by a mean of {net[0].running_mean.tolist()}", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace(
        "each rank keeps the statistics of its own half of the points", "the ranks average their statistics"
    ).replace(
        '    print(f"rank',
        "    for buffer in net.buffers():\n        if buffer.is_floating_point():\n            dist.all_reduce(buffer)\n"
        '            buffer /= dist.get_world_size()\n    print(f"rank',
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.shards_loaders or _mended(program):
            return
        trained = {f.object.key for b in program.of(Backward) for f in program.forwards_of(b.target) if f.object is not None}
        for wrap in program.of(Wrap):
            sites = [site for site in program.buffers_of(wrap) if site.name == "running_mean" and site.layer]
            if sites and wrap.object is not None and wrap.object.key in trained:
                yield self._finding(wrap, sites)
                return

    def _finding(self, wrap: Wrap, sites: list[BufferSite]) -> Finding:
        off = any(constant(wrap.args[n]) is False for n in ("broadcast_buffers", "forward_sync_buffers") if n in wrap.args)
        layers = f"{len(sites)} places with" if len(sites) > 1 else "a"
        message = f"The model has {layers} BatchNorm, which normalises by each rank's own batch; "
        message += (
            "with broadcast_buffers off each rank also keeps its own running statistics."
            if off
            else "after the last step each rank has its own running statistics."
        )
        explanation = (
            "It is harmless where a rank's batch is large and the ranks draw alike. It matters with small batches, and where ranks "
            "evaluate `.module` or a copy of it: each then measures another model."
        )
        related = [
            Related(
                site.span.path,
                site.span.line,
                "buffer",
                site.layer.rsplit(".", 1)[-1] if site.layer == site.owner else f"{site.layer} in {site.owner}",
            )
            for site in sites[:3]
        ]
        return self.finding(wrap.span, message, explanation, related=related + guard_relations(wrap), guards=wrap.guards)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by evaluations with different statistics that were put together; not-observed by equal statistics."""
        from ddp_audit.compare.evaluated import statistics_apart  # which an audit does not need

        if any(statistics_apart(run, Groups(run))):
            return "confirmed"
        synced = any(event.kind == COLLECTIVE and event.origin == SYNC_BATCHNORM for _, event in run.all_events())
        equal: dict[tuple[object, ...], set[object]] = defaultdict(set)
        evaluated: set[int] = set()
        for rank, event in run.events_of(STATISTICS):
            evaluated.add(rank)
            equal[tuple(event.detail.get(key) for key in ("model", "joins", "step"))].add(event.detail.get("hash"))
        alike = len(evaluated) == run.world_size and all(len(hashes) == 1 for hashes in equal.values())
        return "not-observed" if synced or run.world_size == 1 or alike else "not-exercised"


def _mended(program: Program) -> bool:
    """Whether something in the script makes statistics equal, or normalises over all ranks."""
    if hints_at(program, "fixes-batchnorm") or calls_with(program, "shares-buffers"):
        return True
    return any(says(loop.text, "buffers") for node in program.of(Collective) for loop in node.loops)
