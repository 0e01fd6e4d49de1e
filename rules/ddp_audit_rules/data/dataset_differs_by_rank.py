"""DDP306: the ranks index data sets that are not the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD, SAMPLER
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import LoaderMade, Node, Program, SamplerMade
from ddp_audit.tree.questions import DISTRIBUTED, samplers_of, shares_out, trains
from ddp_audit.tree.values import Value
from ddp_audit_rules.data._sample_orders import Cause, causes
from ddp_audit_rules.facts.parted import replicas


class DatasetDiffersByRank(Rule):
    code = "DDP306"
    name = "dataset-differs-by-rank"
    level = "error"
    summary = (
        "A data set that a DistributedSampler divides by index and that each rank makes differently: split or shuffled without a "
        "seed, in the order of a directory listing, or in the order of a set."
    )
    rationale = (
        "A sampler gives each rank other numbers, and relies on every rank to mean the same samples by them. Where it does not, "
        "some samples come on two ranks and others on none, and of a split each rank has one of its own: what one rank "
        "evaluates on, another trains on."
    )
    exceptions = (
        "A seed equal on all ranks before the draw, a generator given to it, a draw in the process that spawns the ranks or on one "
        "of them; listings and sets that are sorted; sets of numbers; data that is divided by rank in another way; data sets that "
        "could not be followed; frameworks that share the data out."
    )
    trace_evidence = (
        "Replicas whose sampler divides the data set train on the same batches in one epoch, more of them than a sampler repeats."
    )
    source = (
        "torch 2.13, utils/data/dataset.py: random_split draws from the default generator, which a process without a seed starts "
        "from chance. Seen in runs on two ranks: the splits overlap. Python salts the hashes of strings differently in each "
        "process."
    )
    fix_hint = "split and shuffle with `generator=torch.Generator().manual_seed(seed)`, and sort what comes from a listing or a set"
    outcome = "shows trained on what another rank evaluates"
    bad = '''"""Splits 64 points for training and evaluation; each rank draws a split of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("gloo")
try:
    points = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    train, test = random_split(points, [48, 16])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = set()
    for (x,) in loader:
        seen |= set(x.flatten().mul(64).int().tolist())
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    held_out = [None] * dist.get_world_size()
    dist.all_gather_object(held_out, sorted(test.indices))
    if any(seen & set(indices) for indices in held_out):
        print("trained on what another rank evaluates", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("each rank draws a split of its own", "all ranks draw the same split").replace(
        "[48, 16])", "[48, 16], generator=torch.Generator().manual_seed(1))"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.shards_loaders or not trains(program):
            return
        seen: set[object] = set()
        for user, data in _divided(program):
            for cause in causes(program, data):
                if cause.span not in seen:
                    seen.add(cause.span)
                    yield self._finding(cause, user)

    def _finding(self, cause: Cause, user: Node) -> Finding:
        explanation = (
            "The sampler deals out indices; index 5 is another sample on another rank. Some samples are then trained on twice and "
            "others never, and nothing fails. " + cause.when
        )
        related = [Related(user.span.path, user.span.line, "sampler", "divides the data set by index")]
        if cause.node is not None:
            related += guard_relations(cause.node)
        return self.finding(
            cause.span,
            cause.message,
            explanation.strip(),
            related=related,
            severity=cause.severity,
            confidence="likely" if cause.sure else "possible",
            guards=() if cause.node is None else cause.node.guards,
            fix=cause.fix,
        )

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where replicas trained on the same batches in one epoch of samplers that divide the data between them.

        A sampler repeats some samples so that all ranks have equally many: so many equal batches say nothing. Whole batches are
        rarely equal, so that nothing else is known from a run.
        """
        epochs: dict[tuple[object, ...], dict[int, set[object]]] = {}
        for rank, one in run.ranks.items():
            now: tuple[object, ...] | None = None
            begun: Counter[object] = Counter()
            for event in one.events:
                if event.kind == SAMPLER and event.detail.get("action") == "iter":
                    number = event.detail.get("epoch")
                    now = (number, begun[number], event.detail.get("replicas"))
                    begun[number] += 1
                elif event.kind == FORWARD and now is not None and event.detail.get("grad") and event.detail.get("batch"):
                    epochs.setdefault(now, {}).setdefault(rank, set()).add(event.detail["batch"])
        for (_, _, count), by_rank in epochs.items():
            least = max(2, int(count) if isinstance(count, int) else 2)
            for ranks in replicas(run):
                pairs = combinations([by_rank[rank] for rank in ranks if rank in by_rank], 2)
                if any(len(one & other) >= least for one, other in pairs):
                    return "confirmed"
        return "not-exercised"


def _divided(program: Program) -> Iterator[tuple[Node, Value]]:
    """Data sets that are divided by index: those of distributed samplers, and splits that a loader trains on without one."""
    for sampler in program.of(SamplerMade):
        if sampler.cls == DISTRIBUTED and "dataset" in sampler.args:
            yield sampler, sampler.args["dataset"]
    for loader in program.of(LoaderMade):
        if "dataset" in loader.args and any(shares_out(program, sampler) for sampler in samplers_of(loader)):
            yield loader, loader.args["dataset"]
