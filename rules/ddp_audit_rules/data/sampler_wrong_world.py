"""DDP303: a sampler is made with a wrong number of replicas, a wrong rank, or a seed that ranks do not share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import SAMPLER, WRAP
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Program, SamplerMade, Seed
from ddp_audit.tree.questions import DISTRIBUTED, by_rank, local_taint, shuffles
from ddp_audit.tree.values import CLOCK, MISSING, RANDOM, Alt, Expr, Value, evaluate, truth
from ddp_audit_rules.data._sampler_shares import numbers_of_group, shares_of, wrong_with
from ddp_audit_rules.facts.one_node import ONE_NODE, TWO_NODES, one_node_only, starts_one_node
from ddp_audit_rules.facts.part_groups import replicates_in_parts
from ddp_audit_rules.facts.parted import replicas


class SamplerWrongWorld(Rule):
    code = "DDP303"
    name = "sampler-wrong-world"
    level = "error"
    summary = (
        "A DistributedSampler whose num_replicas and rank, worked out for every rank of one and of two nodes, do not give each "
        "rank a part of its own; or whose seed differs between ranks."
    )
    rationale = (
        "The samplers of all ranks must cut one and the same permutation into as many parts as there are ranks. With the "
        "number of devices of a node in place of the world size, every node goes through the whole set; with the local rank "
        "combined with the world size, some parts come once a node and others never; with a seed a rank, parts of different "
        "permutations overlap and leave holes."
    )
    exceptions = (
        "Default arguments; numbers that cannot be worked out; a wrapper with a group of some ranks, as the ranks of one replica "
        "rightly share a part; data that the nodes divided before; "
        "scripts that say themselves that they run on one node; a seed of a sampler that does not shuffle."
    )
    trace_evidence = (
        "Replicas (ranks that wrap a model with one group) begin with equal shares, or with another number of shares "
        "than there are replicas."
    )
    source = (
        "torch 2.13, utils/data/distributed.py: a rank takes indices[rank::num_replicas] of a permutation seeded with seed + "
        "epoch. Seen in runs: with a seed a rank, and with per-node numbers on two nodes, ranks share samples and others are "
        "never seen."
    )
    fix_hint = "leave num_replicas and rank out (they come from the process group), and give all ranks one seed"
    outcome = "shows 50 of 64 points were seen"
    bad = '''"""Fits a line to 64 points; each rank's sampler cuts a permutation of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
try:
    points = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    sampler = DistributedSampler(points, num_replicas=world_size, rank=rank, seed=7 + rank)
    loader = DataLoader(points, batch_size=4, sampler=sampler)
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
    print(f"{len(set().union(*everywhere))} of 64 points were seen", flush=True)
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("each rank's sampler cuts a permutation of its own", "the samplers cut one permutation").replace(
        "seed=7 + rank", "seed=7"
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        seen: set[object] = set()
        for node in program.of(SamplerMade):
            if node.cls != DISTRIBUTED or node.span in seen or not node.is_called:
                continue
            for finding in (*self._shares(context, node), *self._seeds(program, node)):
                seen.add(node.span)
                yield finding

    def _shares(self, context: Context, node: SamplerMade) -> Iterator[Finding]:
        given = [name for name in ("num_replicas", "rank") if name in node.args]
        if given and replicates_in_parts(context.program):
            return  # the ranks of one replica rightly have one part
        if not given or "**" in node.args or by_rank(node.args.get("dataset")):
            return
        one, two = shares_of(node, ONE_NODE), shares_of(node, TWO_NODES)
        if one is None or two is None:
            return
        worlds, shares, where = (ONE_NODE, one, "two ranks") if wrong_with(one) else (TWO_NODES, two, "two nodes of two ranks")
        wrong = wrong_with(shares)
        if not wrong or (worlds is TWO_NODES and one_node_only(context.program)):
            return
        listed = ", ".join(
            f"rank {world.rank}: part {rank} of {replicas}" for world, (replicas, rank) in zip(worlds, shares, strict=True)
        )
        message = f"On {where} this sampler {wrong}."
        explanation = f"The parts are: {listed}. Without arguments the sampler asks the process group for both numbers."
        works = worlds is TWO_NODES and starts_one_node(context.launch)
        if worlds is TWO_NODES:
            explanation += " On one node the numbers of the node are those of the job, so the script works there."
        related = [Related(node.span.path, node.span.line, name, f"{name}: {node.args[name].text}") for name in given]
        yield self.finding(
            node.span,
            message,
            explanation,
            related=related + guard_relations(node),
            severity="info" if works else None,
            guards=node.guards,
            fix=numbers_of_group(context.program, node, given),
        )

    def _seeds(self, program: Program, node: SamplerMade) -> Iterator[Finding]:
        seed = node.args.get("seed")
        if seed is None or shuffles(node) is False:
            return
        own = seed.taint & ({CLOCK} if program.has(Seed) else {RANDOM, CLOCK})  # no seed sets the clock
        differing = [arm for arm in _arms(seed) if _differs(arm)]
        if not (own and not node.rank_guards) and not differing:
            return
        arm = differing[0].text if differing and differing[0] is not seed else ""
        text = seed.text or arm or "of this sampler"
        may = f"may be `{arm}` and is then" if arm and arm != text else "is"
        message = (
            f"The seed `{text}` {may} another one on each rank, so the ranks cut different permutations: "
            "their parts overlap, and some samples come on no rank."
        )
        explanation = "The seed of a DistributedSampler must be equal on all ranks; only `rank` may differ."
        fix = Fix("unsafe", "give all ranks one seed", "seed", "take the rank out of the sampler's seed")
        yield self.finding(node.span, message, explanation, related=guard_relations(node), guards=node.guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """By the shares of the samplers that replicas began with; seeds leave no mark.

        The replicas of a model are the ranks that wrapped it with one group: ranks of one model-parallel group rightly have
        equal shares. Where the run knows of no wrapper and has groups of its own, nothing says who shares the data.
        """
        if "seed" in finding.message:
            return "not-exercised"
        shares: dict[int, set[tuple[int, int]]] = {}
        for rank, event in run.events_of(SAMPLER):
            if event.detail.get("action") == "iter":
                own = (int(event.detail.get("rank", -1)), int(event.detail.get("replicas") or 0))
                shares.setdefault(rank, set()).add(own)
        if not any(True for _ in run.events_of(WRAP)) and len(run.groups) > 1:
            return "not-exercised"
        judged = [ranks for ranks in replicas(run) if len(shares.keys() & set(ranks)) > 1]
        if not judged:
            return "not-exercised"
        for ranks in judged:
            known = [shares[rank] for rank in ranks if rank in shares]
            twice = any(one & other for one, other in combinations(known, 2))
            if twice or any(count != len(ranks) for found in known for _, count in found):
                return "confirmed"
        return "not-observed"


def _arms(seed: Value) -> list[Value]:
    """What a seed may be, by conditions that are not known: `rank if deterministic else 0`, `args.seed or rank`."""
    match seed:
        case Expr(op="ifexp", args=(test, then, orelse)):
            answers = {truth(test, world) for world in ONE_NODE}
            if answers == {None} and not local_taint(test):
                return [arm for option in (then, orelse) for arm in _arms(option)]
        case Alt(options=alternatives, choice=None):
            return [arm for option in alternatives for arm in _arms(option)]
        case Expr(op="or", args=args) if MISSING in [evaluate(args[0], world) for world in ONE_NODE]:
            return [seed, *(arm for option in args[1:] for arm in _arms(option))]
    return [seed]


def _differs(seed: Value) -> bool:
    """Whether two ranks of one node have different seeds, worked out for both."""
    one, other = (evaluate(seed, world) for world in ONE_NODE)
    return MISSING not in (one, other) and one != other
