"""DDP301: every rank trains on the whole data set."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Init, LoaderMade, Node, Program, Seed
from ddp_audit.tree.questions import Pass, always_runs, samplers_of, training_passes
from ddp_audit.tree.values import Obj, options
from ddp_audit_rules.data._unshared import (
    drawn_alike,
    gives_own_parts,
    same_order,
    takes_a_sampler,
    trained_forward,
    training_places,
)
from ddp_audit_rules.facts.evidence import by_trained_batches
from ddp_audit_rules.facts.training import wrap_behind


class DataNotSharded(Rule):
    code = "DDP301"
    name = "data-not-sharded"
    level = "error"
    summary = (
        "A loader over a map-style data set whose batches train a DDP model, where neither the sampler nor the data set "
        "gives each rank a part of its own."
    )
    rationale = (
        "Every process goes through the whole set in each epoch. W processes do W times the work of one for the same "
        "epoch, and where they shuffle with one seed, or not at all, they have the same batches: the averaged gradient is "
        "then that of a single process."
    )
    exceptions = (
        "A DistributedSampler or any sampler or data set that is made with the rank or asks for it; indices, files or "
        "batches that are cut by rank; a test of the rank between the loop and the forward; draws with replacement, which "
        "are independent where the seeds are, unless all ranks set one seed before; data sets that draw another index; "
        "iterable data sets; evaluation loops; "
        "loaders that a framework shares out; data sets and samplers that could not be followed (reported as possible)."
    )
    trace_evidence = "Two replicas have the same batches one after the other."
    source = (
        "torch 2.13, utils/data/sampler.py: RandomSampler seeds itself from the global generator of the process when "
        "iteration begins. Seen in runs on two ranks: with equal seeds all batches are identical, with different ones "
        "each rank permutes the whole set."
    )
    fix_hint = "give the loader `sampler=DistributedSampler(dataset)` without `shuffle`, and call its set_epoch in each epoch"
    outcome = "same-samples"
    bad = '''"""Fits a line to 64 points; every process loads all of them."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
try:
    torch.manual_seed(1)
    x = torch.randn(64, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            loss = (model(inputs) - targets).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
finally:
    dist.destroy_process_group()
'''
    good = (
        bad.replace("every process loads all of them", "every process loads its part of them")
        .replace("import DataLoader, TensorDataset", "import DataLoader, DistributedSampler, TensorDataset")
        .replace("    loader = ", "    sampler = DistributedSampler(data)\n    loader = ")
        .replace("shuffle=True", "sampler=sampler")
        .replace("        for inputs, targets", "        sampler.set_epoch(epoch)\n        for inputs, targets")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.loads_for_user:
            return
        seen: set[object] = set()
        for one in training_passes(program):
            if one.made is None or one.made.span in seen:
                continue
            forward = trained_forward(program, one)
            if forward is None:
                continue
            answer = gives_own_parts(program, one.made)
            drawn = drawn_alike(program, one) if answer is True else None
            if answer is True and drawn is None:
                continue
            seen.add(one.made.span)
            if drawn is not None:
                yield self._drawn(program, one, one.made, forward, drawn)
            else:
                yield self._finding(program, one, one.made, forward, sure=answer is False)

    def _finding(self, program: Program, one: Pass, loader: LoaderMade, forward: Node, sure: bool) -> Finding:
        data = loader.args["dataset"].text or "the data set"
        same = same_order(program, loader)
        ending = f" (equal batches: {same})." if same else "."
        message = f"Every rank trains on all of `{data}`: the loader has no sampler that shards it by rank{ending}"
        harm = (
            "Where the ranks shuffle with different seeds, each has its own order of the whole set; with equal seeds their batches "
            "are equal and the other processes add nothing. "
        )
        if same:
            harm = "With equal batches the average over the ranks is the gradient of one rank, so the other processes add nothing. "
        explanation = (
            f"DDP averages gradients; it does not touch the data. {harm}"
            "It would be right if the data set held this rank's share only; that could not be seen here."
        )
        places = [option.made for option in options(loader.args["dataset"]) if isinstance(option, Obj) and option.made is not None]
        related = training_places(one, forward, wrap_behind(program, forward))
        related += [Related(made.path, made.line, "data", "the data set, whole on each rank") for made in places]
        related += guard_relations(loader)
        confidence = "likely" if sure else "possible"
        fix = None
        if sure and takes_a_sampler(program, loader):
            alone = not any(always_runs(program, init) for init in program.of(Init))
            fix = Fix("unsafe", self.fix_hint, "unless-alone" if alone else "")
        return self.finding(loader.span, message, explanation, related=related, confidence=confidence, fix=fix)

    def _drawn(self, program: Program, one: Pass, loader: LoaderMade, forward: Node, seed: Seed) -> Finding:
        sampler = samplers_of(loader)[0]
        cls = sampler.cls if isinstance(sampler, Obj) else "the sampler"
        message = (
            f"All ranks draw the same samples: {cls} uses the global generator, which line {seed.span.line} seeds alike on "
            "every rank."
        )
        explanation = (
            "Draws with replacement need no shares where each rank draws for itself. With equal streams the batches are equal, and "
            "the average of the gradients is that of one rank. It would be right if something moved the generator of some ranks "
            "between the seed and the loop; that could not be seen here."
        )
        related = [Related(seed.span.path, seed.span.line, "seed", seed.text)]
        related += [*training_places(one, forward, wrap_behind(program, forward)), *guard_relations(loader)]
        fix = Fix("display-only", "give the sampler a `generator=` whose seed differs by rank, or add the rank to the seed")
        return self.finding(loader.span, message, explanation, related=related, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where two ranks had an equal batch in the loop; not-observed where two had batches and none was equal."""
        return by_trained_batches(finding, run)
