"""Passes over a loader that gives all ranks the same data, and why the order is the same on all of them."""

from __future__ import annotations

from ddp_audit.findings import Related
from ddp_audit.tree.nodes import Draw, Forward, Init, Iterate, LoaderMade, Node, Program, RandomNumbers, Seed
from ddp_audit.tree.questions import Pass, by_rank, draws_at_random, samplers_of, seed_of_all, seeds_of, shares_out
from ddp_audit.tree.values import MISSING, Obj, Value, constant, options, truth, worlds

_DRAWING = ("WeightedRandomSampler",)


def trained_forward(program: Program, one: Pass) -> Node | None:
    """The forward through a wrapper whose backward is in the loop, where all ranks run it on batches that are not cut by rank."""
    for forward in program.forwards_of(one.backward.target):
        inside = one.loop in forward.loops
        if not isinstance(forward, Forward) or not inside or forward.grad is False or forward.through != "wrapper":
            continue
        cut = any(by_rank(value) for value in forward.args.values()) or any("rank" in g.taint for g in forward.rank_guards)
        if not cut:
            return forward
    return None


def training_places(one: Pass, forward: Node, wrap: Node | None = None) -> list[Related]:
    """The loop over a loader, the forward in it that trains and, where it is given, the wrapper, as related places."""
    places = [
        Related(one.loop.span.path, one.loop.span.line, "loop", "the loop that trains on the loader"),
        Related(forward.span.path, forward.span.line, "forward", "the forward through the wrapper"),
    ]
    if wrap is not None:
        places.append(Related(wrap.span.path, wrap.span.line, "wrap", "the wrapper that averages the gradients"))
    return places


def gives_own_parts(program: Program, loader: LoaderMade) -> bool | None:
    """Whether a loader gives each rank its own part or draws on purpose; None where that is not known."""
    if "dataset" not in loader.args or "**" in loader.args:
        return True
    answers: list[bool | None] = []
    for sampler in samplers_of(loader):
        if isinstance(sampler, Obj) and sampler.kind == "plain-sampler" and _draws(sampler):
            return True
        answers.append(shares_out(program, sampler))
    data = loader.args["dataset"]
    if any(isinstance(o, Obj) and o.kind == "iterable-dataset" for o in options(data)) or draws_at_random(program, data):
        return True
    answers.append(shares_out(program, data))
    if True in answers:
        return True
    return None if None in answers else False


def _draws(sampler: Obj) -> bool:
    replacement = sampler.info.get("replacement") if isinstance(sampler.info, dict) else None
    return sampler.cls in _DRAWING or (replacement is not None and truth(replacement, worlds()[0]) is not False)


def takes_a_sampler(program: Program, loader: LoaderMade) -> bool:
    """Whether a sampler of its own fits a loader: one that is made at one place, for training, where a process group may exist."""
    if "**" in loader.args:
        return False
    inits = list(program.of(Init))
    others = any(n.span == loader.span and n.calls != loader.calls for n in program.of(LoaderMade))
    evaluates = any(n.object is not None and n.object == loader.object and n.grad is False for n in program.of(Iterate))
    return bool(inits) and not others and not evaluates and all(n.number <= loader.number for n in inits)


def drawn_alike(program: Program, one: Pass) -> Seed | None:
    """The seed after which a sampler draws with replacement the same on all ranks; None where it may draw otherwise."""
    assert one.made is not None
    found = samplers_of(one.made)
    if len(found) != 1 or not isinstance(found[0], Obj) or found[0].kind != "plain-sampler" or not isinstance(found[0].info, dict):
        return None
    sampler, data = found[0], one.made.args["dataset"]
    if sampler.info.keys() & {"generator", "**"} or "generator" in one.made.args or not _draws(sampler):
        return None
    if shares_out(program, sampler) is not False or shares_out(program, data) is not False or draws_at_random(program, data):
        return None
    seeds = seeds_of(program, "torch")
    if not seeds or any(n.guards for n in seeds) or any(n.rank_guards for n in program.of(RandomNumbers, Draw)):
        return None  # the streams of some ranks, or of some runs, are others
    last = seeds[-1]
    return last if type(seed_of_all(last)) is int and last.number < one.iterate.number else None


def same_order(program: Program, loader: LoaderMade) -> str:
    """Why the batches are the same on all ranks; empty where they may differ."""
    shuffle: Value | None = loader.args.get("shuffle")
    if shuffle is None or constant(shuffle) is False:
        return "" if samplers_of(loader) else "it does not shuffle"
    return (_equal_seed(program) or "") if constant(shuffle) is True else ""


def _equal_seed(program: Program) -> str | None:
    """What gives all ranks one seed of torch, in words; None where nothing does."""
    seeds = [n for n in seeds_of(program, "torch") if not n.rank_guards]
    if not seeds:
        return None
    value = seed_of_all(seeds[-1])
    if value is MISSING:
        return None
    return f"line {seeds[-1].span.line} gives every rank the seed {seeds[-1].seed.text or value}"
