"""DDP301: every rank trains on the whole data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import BATCH, FORWARD
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.program.loading import Pass, by_rank, draws_at_random, loads_for_user, samplers_of, shares_out, training_passes
from ddp_audit.program.model import Node, Program
from ddp_audit.program.values import MISSING, Obj, Value, World, constant, evaluate, options, truth, worlds
from ddp_audit.rule import Context, Rule, guard_relations
from ddp_audit_rules._always import always_runs

_DRAWING = ("WeightedRandomSampler",)


class DataNotSharded(Rule):
    code = "DDP301"
    name = "data-not-sharded"
    level = "error"
    what = (
        "A loader over a map-style data set whose batches train a DDP model, where neither the sampler nor the data set "
        "gives each rank a part of its own."
    )
    why = (
        "Every process goes through the whole set in each epoch. W processes do W times the work of one for the same "
        "epoch, and where they shuffle with one seed, or not at all, they have the same batches: the averaged gradient is "
        "then that of a single process."
    )
    quiet = (
        "A DistributedSampler or any sampler or data set that is made with the rank or asks for it; indices, files or "
        "batches that are cut by rank; a test of the rank between the loop and the forward; draws with replacement, which "
        "are independent where the seeds are, unless all ranks set one seed before; iterable data sets; evaluation loops; "
        "loaders that a framework shares out; data sets and samplers that could not be followed (reported as possible)."
    )
    confirmed = "Two ranks have a batch with the same fingerprint."
    source = (
        "torch 2.13, utils/data/sampler.py: RandomSampler seeds itself from the global generator of the process when "
        "iteration begins. Seen in runs on two ranks: with equal seeds all batches are identical, with different ones "
        "each rank permutes the whole set."
    )
    remedy = "give the loader `sampler=DistributedSampler(dataset)` without `shuffle`, and call its set_epoch in each epoch"
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
        if loads_for_user(program) or program.frameworks & {"deepspeed", "horovod"}:
            return
        seen: set[object] = set()
        for one in training_passes(program):
            if one.made is None or one.made.span in seen:
                continue
            forward = _trained(program, one)
            if forward is None:
                continue
            answer = _shared_out(program, one.made)
            drawn = _drawn_alike(program, one) if answer is True else None
            if answer is True and drawn is None:
                continue
            seen.add(one.made.span)
            if drawn is not None:
                yield self._drawn(program, one, one.made, forward, drawn)
            else:
                yield self._finding(program, one, one.made, forward, sure=answer is False)

    def _finding(self, program: Program, one: Pass, loader: Node, forward: Node, sure: bool) -> Finding:
        data = loader.args["dataset"].text or "the data set"
        same = _same_order(program, loader)
        message = (
            f"No sampler of this loader knows the rank and `{data}` is not cut by rank, so every rank trains on all of it: W "
            "processes do W times the work of one for each epoch"
        )
        message += f", with the same batches, because {same}." if same else "."
        explanation = (
            "DDP averages gradients; it does not touch the data. "
            + (
                "With equal batches the average over the ranks is the gradient of one rank, so the other processes add nothing. "
                if same
                else "Where the ranks shuffle with different seeds, each has its own order of the whole set; "
                "with equal seeds their batches are equal and the other processes add nothing. "
            )
            + "It would be right if the data set held this rank's share only; that could not be seen here."
        )
        related = [Related(one.loop.span.path, one.loop.span.line, "loop", "the loop that trains on the loader")]
        related.append(Related(forward.span.path, forward.span.line, "forward", "the forward through the wrapper"))
        related += _wrap_of(program, forward)
        related += [
            Related(made.path, made.line, "data", "the data set, whole on each rank")
            for option in options(loader.args["dataset"])
            if isinstance(option, Obj) and (made := option.made) is not None
        ]
        return self.finding(
            loader.span,
            message,
            explanation,
            related=related + guard_relations(loader),
            confidence="likely" if sure else "possible",
            fix=self._sampler(program, loader) if sure else None,
        )

    def _sampler(self, program: Program, loader: Node) -> Fix | None:
        """A sampler of the loader's own, where the loader is made at one place, for training, in a job with a process group."""
        inits = list(program.of("init"))
        others = [n for n in program.of("loader") if n.span == loader.span and n.calls != loader.calls]
        takes = {
            n.function for n in program.of("iterate") if n.object is not None and n.object == loader.object and n.grad is False
        }
        if not inits or others or takes or any(init.number > loader.number for init in inits) or "**" in loader.args:
            return None
        alone = not any(always_runs(program, init) for init in inits)
        return Fix("unsafe", self.remedy, "unless-alone" if alone else "")

    def _drawn(self, program: Program, one: Pass, loader: Node, forward: Node, seed: Node) -> Finding:
        sampler = samplers_of(loader)[0]
        cls = sampler.cls if isinstance(sampler, Obj) else "the sampler"
        message = (
            f"{cls} draws from the global generator, to which line {seed.span.line} gives the same seed on every rank, so all "
            "ranks draw the same samples and W processes do the work of one."
        )
        explanation = (
            "Draws with replacement need no shares where each rank draws for itself. With equal streams the batches are equal, and "
            "the average of the gradients is that of one rank. It would be right if something moved the generator of some ranks "
            "between the seed and the loop; that could not be seen here."
        )
        related = [
            Related(seed.span.path, seed.span.line, "seed", seed.text),
            Related(one.loop.span.path, one.loop.span.line, "loop", "the loop that trains on the loader"),
            Related(forward.span.path, forward.span.line, "forward", "the forward through the wrapper"),
            *_wrap_of(program, forward),
            *guard_relations(loader),
        ]
        fix = Fix("display-only", "give the sampler a `generator=` whose seed differs by rank, or add the rank to the seed")
        return self.finding(loader.span, message, explanation, related=related, fix=fix)

    def witness(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed where two ranks had an equal batch in the loop; not-observed where two had batches and none was equal."""
        batches = {rank: set(found) for rank, found in _batches(finding, run) if found}
        if len(batches) < 2:
            return "not-covered"
        ranks = sorted(batches)
        equal = any(batches[a] & batches[b] for a in ranks for b in ranks if a < b)
        return "confirmed" if equal else "not-observed"


def _wrap_of(program: Program, forward: Node) -> list[Related]:
    wrap = program.wraps().get(forward.object.key) if forward.object is not None else None
    return [] if wrap is None else [Related(wrap.span.path, wrap.span.line, "wrap", "the wrapper that averages the gradients")]


def _batches(finding: Finding, run: RecordedRun) -> Iterator[tuple[int, list[str]]]:
    """The fingerprints of each rank's batches at the loop or the forward of a finding."""
    found: dict[int, list[str]] = {}
    for place in finding.related:
        if place.role in ("loop", "forward"):
            for rank, event in run.events_at(place.path, place.line):
                mark = event.detail.get("fingerprint" if event.kind == BATCH else "batch")
                if event.kind in (BATCH, FORWARD) and mark:
                    found.setdefault(rank, []).append(str(mark))
    yield from sorted(found.items())


def _trained(program: Program, one: Pass) -> Node | None:
    """The forward through a wrapper whose backward is in the loop, where all ranks run it on batches that are not cut by rank."""
    for forward in program.forwards_of(one.backward.target):
        inside = one.loop in forward.loops
        if forward.kind != "forward" or not inside or forward.grad is False or forward.detail["through"] != "wrapper":
            continue
        cut = any(by_rank(value) for value in forward.args.values()) or any("rank" in g.taint for g in forward.rank_guards)
        if not cut:
            return forward
    return None


def _shared_out(program: Program, loader: Node) -> bool | None:
    """Whether a loader gives each rank its own part or draws on purpose; None where that is not known."""
    if "dataset" not in loader.args or "**" in loader.args:
        return True
    answers: list[bool | None] = []
    for sampler in samplers_of(loader):
        if isinstance(sampler, Obj) and sampler.kind == "plain-sampler" and _draws(sampler):
            return True
        answers.append(shares_out(program, sampler))
    data = loader.args["dataset"]
    if any(isinstance(o, Obj) and o.kind == "iterable-dataset" for o in options(data)) or draws_at_random(data):
        return True
    answers.append(shares_out(program, data))
    if True in answers:
        return True
    return None if None in answers else False


def _draws(sampler: Obj) -> bool:
    replacement = sampler.info.get("replacement") if isinstance(sampler.info, dict) else None
    return sampler.cls in _DRAWING or (replacement is not None and truth(replacement, worlds()[0]) is not False)


def _drawn_alike(program: Program, one: Pass) -> Node | None:
    """The seed after which a sampler draws with replacement the same on all ranks; None where it may draw otherwise."""
    assert one.made is not None
    found = samplers_of(one.made)
    if len(found) != 1 or not isinstance(found[0], Obj) or found[0].kind != "plain-sampler" or not isinstance(found[0].info, dict):
        return None
    sampler, data = found[0], one.made.args["dataset"]
    if sampler.info.keys() & {"generator", "**"} or "generator" in one.made.args or not _draws(sampler):
        return None
    if shares_out(program, sampler) is not False or shares_out(program, data) is not False or draws_at_random(data):
        return None
    seeds = [n for n in program.of("seed") if n.detail["what"].startswith("torch")]
    if not seeds or any(n.guards for n in seeds) or any(n.rank_guards for n in program.of("random", "draw")):
        return None  # the streams of some ranks, or of some runs, are others
    last = seeds[-1]
    values = {evaluate(last.args["seed"], World(rank, 2, 2)) for rank in (0, 1)} if "seed" in last.args else set()
    return last if len(values) == 1 and type(values.pop()) is int and last.number < one.iterate.number else None


def _same_order(program: Program, loader: Node) -> str:
    """Why the batches are the same on all ranks; empty where they may differ."""
    shuffle: Value | None = loader.args.get("shuffle")
    if shuffle is None or constant(shuffle) is False:
        return "" if samplers_of(loader) else "it does not shuffle"
    return (_equal_seed(program) or "") if constant(shuffle) is True else ""


def _equal_seed(program: Program) -> str | None:
    """What gives all ranks one seed of torch, in words; None where nothing does."""
    seeds = [n for n in program.of("seed") if n.detail["what"].startswith("torch") and not n.rank_guards]
    if not seeds:
        return None
    values = {evaluate(n.args["seed"], World(rank, 2, 2)) for n in seeds[-1:] for rank in (0, 1)}
    if len(values) != 1 or MISSING in values:
        return None
    return f"line {seeds[-1].span.line} gives every rank the seed {seeds[-1].args['seed'].text or values.pop()}"
