"""DDP305: data is divided between the ranks twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAMPLER
from ddp_audit.findings import Finding, Related
from ddp_audit.program.loading import DISTRIBUTED, lines_with, samplers_of, training_passes
from ddp_audit.program.model import Guard, Node, Program
from ddp_audit.program.values import Obj, Unknown, Value, World, evaluate, loop_leaves, options
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules._cuts import cut_by_rank

_SWITCHES = r"(use_distributed_sampler|replace_sampler_ddp)\s*=\s*False|replace_sampler_ddp.*False|use_distributed_sampler.*False"


class ShardedTwice(Rule):
    code = "DDP305"
    name = "sharded-twice"
    level = "error"
    what = (
        "Data that each rank has a part of already is divided by rank once more: by a DistributedSampler over the rank's own "
        "part, by a loop that skips other ranks' batches, or by a framework that shards every loader it is given."
    )
    why = (
        "Each rank trains on one part in W of its part in W. With two ranks half of the data is never seen, with eight seven "
        "eighths; an epoch is over W times sooner, and the loss looks as it always does."
    )
    quiet = (
        "One division only; a sampler that divides among the ranks of one node what the nodes divided; `prepare()` that is not "
        "given the loader; Lightning and Fabric where they are given a DistributedSampler, which they leave alone, or are told "
        "not to put one in; data sets that take the rank for something else."
    )
    confirmed = (
        "Nothing that a trace holds by itself: it does not know how large the data set is. A short epoch of the sampler shows it."
    )
    source = (
        "torch 2.13, utils/data/distributed.py: a sampler divides the indices of the data set that it is given. Seen in a run: "
        "Accelerate shards a loader again that has a DistributedSampler. Lightning 2.6 puts a DistributedSampler into each "
        "loader over a map-style data set whose sampler is none."
    )
    remedy = (
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
        program = context.program
        seen: set[object] = set()
        for finding in (*self._samplers(program), *self._loops(program), *self._prepared(program), *self._lightning(program)):
            if finding.span not in seen:
                seen.add(finding.span)
                yield finding

    def _samplers(self, program: Program) -> Iterator[Finding]:
        for node in program.of("sampler"):
            if node.detail["cls"] != DISTRIBUTED or "dataset" not in node.args or not _over_all_ranks(node):
                continue
            cut = cut_by_rank(node.args["dataset"])
            if cut:
                message = (
                    f"`{node.args['dataset'].text or 'the data set'}` is this rank's own part already ({cut}) and the sampler "
                    "divides it among the ranks again, so that each trains on one part in W of its part."
                )
                yield self._finding(node, message)

    def _loops(self, program: Program) -> Iterator[Finding]:
        for one in training_passes(program):
            if one.made is None or not any(_is_distributed(sampler) for sampler in samplers_of(one.made)):
                continue
            guard = next((g for g in one.backward.guards if _skips(g, one.loop.leaf)), None)
            if guard is not None:
                message = (
                    f"The sampler gives each rank its part, and `{guard.text}` (line {guard.span.line}) leaves all but one batch "
                    "in W of that part out."
                )
                yield self._finding(
                    one.made, message, [Related(guard.span.path, guard.span.line, "guard", "skips batches by rank")]
                )

    def _prepared(self, program: Program) -> Iterator[Finding]:
        made = {n.object.key: n for n in program.of("loader") if n.object is not None}
        for node in program.of("prepare"):
            for value in node.args.values():
                loader = next((made[o.key] for o in options(value) if isinstance(o, Obj) and o.key in made), None)
                if loader is None:
                    continue
                sampler = any(_is_distributed(s) for s in samplers_of(loader))
                cut = cut_by_rank(loader.args["dataset"]) if "dataset" in loader.args else ""
                if node.detail["framework"] == "accelerate" and (sampler or cut):
                    what = "has a DistributedSampler" if sampler else f"holds this rank's own part ({cut})"
                    message = (
                        f"`{value.text or 'The loader'}` {what} and `{node.text.split('(')[0]}()` shards it again, so that each "
                        "rank trains on one part in W of its part."
                    )
                    yield self._finding(
                        node, message, [Related(loader.span.path, loader.span.line, "loader", "divided here first")]
                    )
                elif node.detail["framework"] == "fabric" and cut and not sampler and not _switched_off(program):
                    yield self._finding(
                        node, _INJECTED.format(cut=cut), [Related(loader.span.path, loader.span.line, "loader", "made")]
                    )

    def _lightning(self, program: Program) -> Iterator[Finding]:
        if "lightning" not in program.frameworks or _switched_off(program) or any(True for _ in program.of("prepare", "wrap")):
            return
        if not any(True for _ in lines_with(program, r"\bTrainer\(|LightningModule|LightningDataModule")):
            return
        for loader in program.of("loader"):
            cut = cut_by_rank(loader.args["dataset"]) if "dataset" in loader.args else ""
            iterable = any(
                isinstance(o, Obj) and o.kind == "iterable-dataset" for o in options(loader.args.get("dataset", Unknown()))
            )
            if cut and not iterable and not any(_is_distributed(s) for s in samplers_of(loader)):
                yield self._finding(loader, _INJECTED.format(cut=cut))

    def _finding(self, node: Node, message: str, related: Iterable[Related] = ()) -> Finding:
        explanation = (
            "Nothing fails and the loss falls as usual; the epoch is W times shorter than it should be, and most of the data is "
            "never seen. Compare len(loader) * batch_size * W with the size of the data set."
        )
        return self.finding(node.span, message, explanation, related=[*related, *guard_relations(node)], guards=node.guards)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """A sampler that began on one rank alone divides nothing; how large the data was, a trace does not say."""
        begun = [e for _, e in run.events_at(finding.span.path, finding.span.line, finding.span.end_line) if e.kind == SAMPLER]
        alone = begun and all(int(e.detail.get("replicas") or 0) == 1 for e in begun)
        return "not-observed" if alone else "not-covered"


_INJECTED = (
    "The data set is this rank's own part already ({cut}), and the DistributedSampler that is put into the loader divides it among "
    "the ranks again (use_distributed_sampler is on), so that each trains on one part in W of its part."
)


def _is_distributed(value: Value) -> bool:
    return isinstance(value, Obj) and value.kind == "sampler" and value.cls == DISTRIBUTED


def _over_all_ranks(node: Node) -> bool:
    """Whether a sampler divides among all ranks: by default, or by the world size."""
    replicas = node.args.get("num_replicas")
    return replicas is None or evaluate(replicas, World(1, 4, 2)) == 4


def _skips(guard: Guard, leaf: str) -> bool:
    """Whether a condition lets a rank pass in one of W turns of a loop: `index % world_size == rank`."""
    return bool(leaf) and "rank" in guard.test.taint and leaf in set(loop_leaves(guard.test)) and "%" in guard.text


def _switched_off(program: Program) -> bool:
    return any(True for _ in lines_with(program, _SWITCHES))
