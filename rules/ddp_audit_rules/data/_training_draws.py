"""Random numbers that training rests on, the seeds of their streams, and whether the ranks have any seed at all."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, LoaderMade, Program, RandomNumbers, Seed, Spawn, Split, Wrap
from ddp_audit.tree.questions import code_at, made_by_chance, seed_of_all, seeds_of, training_passes
from ddp_audit.tree.values import RANDOM, RANK, Const, Obj, Value, options
from ddp_audit_rules.facts.training import wrap_behind


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw that training rests on: where, from which library's stream, and what it means that all ranks make it alike."""

    span: Span
    package: str
    number: int  # of the node before which the seed must stand
    words: str
    role: str


def draws(program: Program) -> Iterator[Draw]:
    """Draws in a training loop, in the model's forward, in the data set that is trained on; transforms that draw."""
    trained = {loop for backward in program.of(Backward) for loop in backward.loops}
    innermost = {backward.loops[-1] for backward in program.of(Backward) if backward.loops}
    for node in program.of(RandomNumbers):
        here = trained & set(node.loops) and (node.grad is not False or node.loops[-1] in innermost)
        if not node.augments and here and not node.rank_guards and not _is_scalar(program, node):
            words = f"`{node.text}` gives all ranks the same numbers in each step"
            yield Draw(node.span, node.stream, node.number, words, "drawn in each step of training")
    for backward in program.of(Backward):
        for forward in program.forwards_of(backward.target):
            wrap = wrap_behind(program, forward)
            if wrap is not None and "module" in wrap.args:
                yield from _sites(program, options(wrap.args["module"]), wrap.number, "the model")
    for one in training_passes(program):
        if one.made is None or "dataset" not in one.made.args or _seeds_workers(one.made):
            continue
        yield from _sites(program, options(one.made.args["dataset"]), one.made.number, "the data set")
        for node in program.of(RandomNumbers):
            if node.augments and node.number < one.made.number and not node.rank_guards:
                words = f"the augmentation (`{node.text}`) is the same on all ranks for samples in the same place of a batch"
                yield Draw(node.span, "torch", one.made.number, words, "a transform that draws")


def _is_scalar(program: Program, node: RandomNumbers) -> bool:
    """Whether a draw gives one Python number: those decide lengths and ways through the loop, on which ranks must agree."""
    call = code_at(program, node.span, ast.Call)
    return node.stream == "random" or (node.stream == "numpy" and call is not None and not call.args and not call.keywords)


def _sites(program: Program, values: Iterable[Value], number: int, owner: str) -> Iterator[Draw]:
    for value in values:
        if isinstance(value, Obj):
            for site in program.random_sites.get(value.key, []):
                words = f"what {owner} draws (`{site.what}`) is the same on all ranks in each step"
                yield Draw(site.span, site.what.split(".")[0], number, words, f"drawn in {site.method}")


def _seeds_workers(loader: LoaderMade) -> bool:
    """Whether a loader gives its workers seeds or a generator that may know the rank."""
    given = [loader.args[name] for name in ("worker_init_fn", "generator") if name in loader.args]
    return any(value.taint & {RANK} or not (isinstance(value, Const) and value.value is None) for value in given)


def seeds_behind(program: Program, draw: Draw) -> list[Seed]:
    """The seeds that a draw may follow: one of torch may be made on the CPU or on a GPU."""
    return seeds_of(program, *(("torch", "cuda") if draw.package == "torch" else (draw.package,)))


def place_for_seeds(program: Program, seed: Seed) -> str:
    """The line of the loop that trains and the number that a seed is, `-` where it is not known, as a fix needs them.

    Empty where a seed by rank does not belong before that loop: it stands in another file, or the ranks must draw alike in it.
    """
    backward = next((n for n in program.of(Backward) if n.loops), None)
    if backward is None:
        return ""
    loop = backward.loops[0]
    inside = [n for n in program.nodes if any(one.span == loop.span for one in n.loops)]
    after = [n for n in program.of(Split) if inside and n.number >= inside[0].number and "generator" not in n.args]
    chance = any(made_by_chance(g.test) or RANDOM in g.test.taint for n in inside for g in n.guards)
    if loop.span.path != seed.span.path or seed in inside or seed.number > inside[0].number or after or chance:
        return ""
    value = seed.seed
    number = seed_of_all(seed) if isinstance(value, Const) and value.default is None and not value.deps else None
    return f"{loop.span.line} {number if type(number) is int else '-'}"


def _is_imported(program: Program, node: Seed) -> bool:
    """Whether a spawned process comes there too: it imports the script, with all that is not under `if __name__ == "__main__"`."""
    place = node.calls[0] if node.calls else node.span
    if place.path not in program.files:
        return False
    for statement in program.files[place.path].tree.body:
        if statement.lineno <= place.line <= (statement.end_lineno or 0) and isinstance(statement, ast.If):
            return not any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test))
    return True


def seeded_in_parent_only(program: Program) -> tuple[Seed, Spawn] | None:
    """A seed before the ranks are spawned, and the call that spawns them, where no rank seeds its CPU generator."""
    for spawn in program.of(Spawn):
        if spawn.nprocs is None:
            continue  # a forked process has its parent's state
        seeds = seeds_of(program, "torch")
        parent = [n for n in seeds if spawn.span not in n.calls and n.number < spawn.number]
        ranks = [n for n in seeds if spawn.span in n.calls or _is_imported(program, n)]
        inside = any(spawn.span in n.calls for n in program.of(Wrap))
        if parent and not ranks and inside:
            return parent[0], spawn
    return None
