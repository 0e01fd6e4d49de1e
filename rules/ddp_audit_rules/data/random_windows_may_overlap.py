"""DDP309: each rank draws its training windows at random from the whole set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import FORWARD
from ddp_audit.findings import Finding, Related
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit.tree.nodes import Draw, Drawing, OwnDraw, Program, Seed
from ddp_audit.tree.questions import trains
from ddp_audit_rules.data._drawn_windows import draw_alike, entered, is_window, listed, seed_before
from ddp_audit_rules.facts.evidence import have_shared, sequences_of


class RandomWindowsMayOverlap(Rule):
    code = "DDP309"
    name = "random-windows-may-overlap"
    level = "info"
    summary = (
        "Indices of training samples that each rank draws from its own random stream over the whole set. Where some ranks draw "
        "from the same stream at other times (an evaluation on rank 0), the finding says so."
    )
    rationale = (
        "It is a legitimate way to sample, and it promises less than a sampler does: the ranks' windows may overlap, "
        "no epoch visits each sample once, and what a rank draws depends on all its draws before, so an "
        "additional draw on one rank, such as a longer evaluation, changes what that rank trains on from there on. With "
        "equal seeds the ranks that draw equally often draw the same windows, which is reported as a warning."
    )
    exceptions = (
        "Draws from a generator of the program's own whose seed is not known to be equal, from data that is cut by rank, of a "
        "whole permutation, with weights, of what the function does not then read, in data sets and models (augmentation), with "
        "gradients off, and scripts without a DDP model that trains."
    )
    trace_evidence = "Two replicas have the same batches one after the other. Overlap inside of batches leaves no mark."
    source = "torch 2.13, torch.randint: draws from the default generator of the process, which torch.manual_seed seeds."
    fix_hint = (
        "draw from a generator made for training alone and seeded by rank, or cut the data by rank or use a DistributedSampler "
        "where each sample must come once"
    )
    outcome = "clean"
    bad = '''"""Fits a line to windows of a long series, drawn at random by each rank; rank 0 also draws some to evaluate."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
data = torch.linspace(0, 1, 20)


def get_batch():
    starts = torch.randint(len(data) - 4, (8,))
    windows = torch.stack([data[i : i + 5] for i in starts])
    return windows[:, :4], windows[:, 4:], starts.tolist()


try:
    torch.manual_seed(1 + rank)
    net = torch.nn.Linear(4, 1)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step % 2 == 0 and rank == 0:
            with torch.no_grad():
                x, y, _ = get_batch()
                print(f"loss {(net(x) - y).pow(2).mean():.4f}")
        x, y, starts = get_batch()
        print(f"rank {rank} step {step} starts {starts}", flush=True)
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
finally:
    dist.destroy_process_group()
'''
    good = (
        bad.replace("drawn at random by each rank; rank 0 also draws some to evaluate", "each rank in its own part of it")
        .replace("data = torch.linspace(0, 1, 20)", "data = torch.linspace(0, 1, 20)[10 * rank : 10 * rank + 10]")
        .replace("len(data) - 4, (8,))", "len(data) - 4, (8,), generator=generator)")
        .replace("def get_batch():", "def get_batch(generator):")
        .replace("x, y, _ = get_batch()", "x, y, _ = get_batch(evaluating)")
        .replace("x, y, starts = get_batch()", "x, y, starts = get_batch(training)")
        .replace(
            "    net = torch",
            "    training, evaluating = (torch.Generator().manual_seed(s) for s in (1 + rank, 99))\n    net = torch",
        )
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if not trains(program):
            return
        draws = [node for node in program.of(Draw, OwnDraw) if is_window(program, node)]
        by_place: dict[object, list[Draw | OwnDraw]] = {}
        for node in draws:
            by_place.setdefault((node.span, node.stream), []).append(node)
        for nodes in by_place.values():
            training = [n for n in nodes if not n.rank_guards and n.grad is not False and n.is_called]
            if training:
                others = [n for n in draws if n.rank_guards and n.stream == training[0].stream]
                yield from self._findings(program, training[0], others)

    def _findings(self, program: Program, node: Drawing, others: Sequence[Drawing]) -> Iterable[Finding]:
        seed, equal = seed_before(program, node)
        alike = draw_alike(program, node, seed, equal) if seed is not None else None
        if seed is not None and alike is not None:
            yield self._alike(node, seed, others, *alike)
        elif isinstance(node, Draw):
            yield self._finding(node, seed, equal, others)

    def _alike(self, node: Drawing, seed: Seed, others: Sequence[Drawing], ranks: list[int], size: int) -> Finding:
        whole = len(ranks) == size
        who = "all ranks" if whole else f"ranks {listed(ranks)} of {size}"
        message = f"`{node.text}` follows one seed (line {seed.span.line}), so {who} train on the same windows."
        related = [Related(seed.span.path, seed.span.line, "seed", "the same seed on these ranks")]
        explanation = "With equal windows the average over the ranks is the gradient of one rank: the other processes add nothing."
        if not whole and not others:
            explanation = f"The gradients of ranks {listed(ranks)} are one gradient, counted {len(ranks)} times."
        elif not whole:
            path = next((g.ranks() for n in others for g in n.rank_guards if g.ranks() != "some ranks"), "some ranks")
            lines = ", ".join(entered(others))
            explanation = (
                "Ranks that draw equally often from equal seeds draw the same numbers. The further draws"
                f"{f' ({lines})' if lines else ''} move the stream of the "
                f"ranks that make them ({path}), which train on other windows from then on. The gradients of ranks "
                f"{listed(ranks)} are one gradient, counted {len(ranks)} times."
            )
            for other in others[:1]:
                related += [Related(other.span.path, other.span.line, "draw", "drawn here on both paths"), *guard_relations(other)]
        return self.finding(node.span, message, explanation, related=related, severity="warning")

    def _finding(self, node: Drawing, seed: Seed | None, equal: bool, others: Sequence[Drawing]) -> Finding:
        message = "Windows of different ranks may overlap"
        explanation = (
            f"Each rank draws its windows from the whole set with `{node.text}`. "
            "No epoch visits each sample once, and a resumed run repeats the order only if the state of the "
            "generator was saved. "
        )
        related: list[Related] = []
        if seed is not None:
            said = "the same seed on every rank" if equal else "the seed of the stream that is drawn from"
            related.append(Related(seed.span.path, seed.span.line, "seed", said))
        if others:
            who = next((g.ranks() for n in others for g in n.rank_guards if g.ranks() != "some ranks"), "some ranks")
            lines = ", ".join(f"{place}" for place in entered(others))
            message += f"; {who} {'draws' if who == 'only rank 0' else 'draw'} from the same stream elsewhere too ({lines})"
            explanation += (
                "The draws of the other path move the stream of the ranks that take it and of no other, so what those ranks train "
                "on next depends on how often, and how long, that path runs: here the number of evaluations and of their batches. "
            )
            for other in others[:1]:
                related += [Related(other.span.path, other.span.line, "draw", "drawn here on both paths")]
                related += guard_relations(other)
        explanation += "Independent draws are unbiased, so nothing is wrong unless something relies on disjoint windows."
        return self.finding(node.span, message + ".", explanation, related=related)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where replicas trained on the same batches; overlap inside of batches leaves no mark."""
        return "confirmed" if have_shared(run, sequences_of(run, run.all_events(), FORWARD)) else "not-exercised"
