"""DDP308: all ranks draw the same numbers, or the seed never reaches them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddp_audit.compare.faults import SEED_SHARED
from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD, SEED
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Node, Program, Seed
from ddp_audit.tree.questions import trains
from ddp_audit_rules.data._training_draws import Draw, draws, place_for_seeds, seeded_in_parent_only, seeds_behind
from ddp_audit_rules.facts.evidence import has_fault, have_shared, sequences_of
from ddp_audit_rules.facts.parted import replicas


class SameRandomStream(Rule):
    code = "DDP308"
    name = "same-random-stream"
    level = "info"
    summary = (
        "Every rank sets one seed and keeps it, and then draws noise, time steps, crops or other random input for training; or the "
        "seed is set only in the process that spawns the ranks, which none of them inherits."
    )
    rationale = (
        "With equal seeds the streams of all ranks are equal: in one step every rank adds the same noise and takes the same time "
        "steps, so W ranks average over one draw where they seem to average over W. Workers of a loader derive their seeds from "
        "the same stream and repeat each other's augmentation. Where spawned ranks get no seed, each starts from chance: the run "
        "cannot be repeated though a seed was given."
    )
    exceptions = (
        "A seed that depends on the rank anywhere, before or after the model is made; draws from a generator of their own; the "
        "order of data, which the sampler decides with its own seed; single numbers that decide how training goes on, in which "
        "ranks may have to agree; dropout, whose masks fall on different data; draws before the training loop or on some ranks; "
        "seeds that nothing but initial weights rest on; scripts that train no DDP model."
    )
    trace_evidence = (
        "Two replicas drew the same numbers before their forwards (the silent fault seed), or forwarded the same inputs "
        "one after the other."
    )
    source = (
        "torch 2.13, torch.manual_seed; utils/data/_utils/worker.py: a worker's seed is a number drawn from the process's stream "
        "plus the worker's number. Seen in runs on two ranks: equal seeds give equal draws; a process started by spawn has a "
        "state of its own."
    )
    fix_hint = "build the model, then seed each rank by itself: `torch.manual_seed(seed + rank)`"
    outcome = "same-samples"
    bad = '''"""Trains a network to copy random vectors; every rank draws the same ones."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
try:
    torch.manual_seed(1)
    model = DDP(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        noise = torch.randn(8, 4)
        (model(noise) - noise).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
finally:
    dist.destroy_process_group()
'''
    good = bad.replace("every rank draws the same ones", "each rank draws its own").replace(
        "    optimizer = ", "    torch.manual_seed(1 + dist.get_rank())\n    optimizer = "
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not trains(program):
            return
        unseeded = seeded_in_parent_only(program)
        if unseeded is not None:
            yield self._parent(*unseeded)
            return
        for draw in draws(program):
            seeds = seeds_behind(program, draw)
            if any(seed.seed.taint or seed.rank_guards for seed in seeds) or not seeds:
                continue
            before = [seed for seed in seeds if seed.number < draw.number] or seeds
            yield self._same(program, before[-1], draw)
            return

    def _same(self, program: Program, seed: Seed, draw: Draw) -> Finding:
        message = f"Every rank has the seed `{seed.seed.text or seed.text}` and none of its own, so {draw.words}."
        explanation = (
            "Equal seeds are right until the model is made; kept for training they make the ranks' draws equal in every step, as "
            "long as all ranks draw equally often. The average over the ranks then rests on one draw in place of as many as there "
            "are ranks. This is intended where ranks must agree (tensor parallelism)."
        )
        related = [Related(draw.span.path, draw.span.line, "draw", draw.role), *guard_relations(seed)]
        where = place_for_seeds(program, seed)
        fix = Fix("unsafe", self.fix_hint, f"before-loop {draw.package} {where}") if where else None
        return self.finding(seed.span, message, explanation, related=related, guards=seed.guards, fix=fix)

    def _parent(self, seed: Node, spawn: Node) -> Finding:
        message = (
            f"`{seed.text}` seeds the process that spawns the ranks and not the ranks: a run cannot be repeated with the seed."
        )
        explanation = (
            "A spawned process does not inherit the generators of its parent. Initial weights are equal all the same, because DDP "
            "sends those of rank 0; they, the draws of each rank and everything shuffled without a seed differ from run to run."
        )
        related = [Related(spawn.span.path, spawn.span.line, "spawn", "the ranks start here, unseeded")]
        fix = Fix("display-only", f"{self.fix_hint}, in the function that is spawned")
        if spawn.span.path == seed.span.path:
            fix = replace(fix, safety="unsafe", detail=f"in-spawned {spawn.span.line}")
        return self.finding(seed.span, message, explanation, related=related, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by equal draws or equal inputs of replicas; not-observed where each had a seed of its own before training.

        One seed alone shows nothing: the batches may come from a sampler, or from generators of their own.
        """
        if has_fault(run, SEED_SHARED) or have_shared(run, sequences_of(run, run.all_events(), FORWARD)):
            return "confirmed"
        last: dict[int, object] = {}
        trained: set[int] = set()
        for rank, event in run.all_events():
            if event.kind == FORWARD and event.detail.get("grad"):
                trained.add(rank)
            elif event.kind == SEED and rank not in trained:
                last[rank] = event.detail.get("seed")
        if any(place.role == "spawn" for place in finding.related) or not trained:
            return "not-exercised"
        apart = [len({last[rank] for rank in ranks if rank in last}) == len(ranks) for ranks in replicas(run)]
        return "not-observed" if apart and all(apart) else "not-exercised"
