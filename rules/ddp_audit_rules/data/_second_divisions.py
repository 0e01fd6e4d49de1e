"""Data that each rank has a part of and that is divided among the ranks once more: at which node, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ddp_audit.findings import Related
from ddp_audit.knowledge import framework
from ddp_audit.tree.nodes import Guard, LoaderMade, Node, Prepare, Program, SamplerMade, Wrap
from ddp_audit.tree.questions import DISTRIBUTED, is_given, samplers_of, training_passes
from ddp_audit.tree.values import Obj, Unknown, Value, World, behind, evaluate, loop_leaves, operation_of, options
from ddp_audit_rules.data._cuts import cut_by_rank

_SWITCHES = ("use_distributed_sampler", "replace_sampler_ddp")
_INJECTED = (
    "The data set is this rank's own part already ({cut}), and the DistributedSampler that is put into the loader divides it among "
    "the ranks again (use_distributed_sampler is on), so that each trains on one part in W of its part."
)


class Division(NamedTuple):
    """A second division at a node, in words, and where the first one is, if that is another place."""

    node: Node
    message: str
    first: list[Related]


def second_divisions(program: Program) -> Iterator[Division]:
    """By samplers, by loops that skip batches, by `prepare()` and by samplers that a framework puts in, in this order."""
    yield from _by_samplers(program)
    yield from _by_loops(program)
    yield from _by_prepare(program)
    yield from _by_injected_samplers(program)


def _by_samplers(program: Program) -> Iterator[Division]:
    for node in program.of(SamplerMade):
        if node.cls != DISTRIBUTED or "dataset" not in node.args or not _over_all_ranks(node):
            continue
        cut = cut_by_rank(node.args["dataset"])
        if cut:
            message = (
                f"`{node.args['dataset'].text or 'the data set'}` is already this rank's part ({cut}), and the sampler divides it "
                "again: most of the data is never used."
            )
            yield Division(node, message, [])


def _by_loops(program: Program) -> Iterator[Division]:
    for one in training_passes(program):
        if one.made is None or not any(_is_distributed(sampler) for sampler in samplers_of(one.made)):
            continue
        guard = next((g for g in one.backward.guards if _skips(g, one.loop.leaf)), None)
        if guard is not None:
            message = (
                f"The sampler gives each rank its part, and `{guard.text}` (line {guard.span.line}) skips all but one in "
                "world-size batches of it."
            )
            yield Division(one.made, message, [Related(guard.span.path, guard.span.line, "guard", "skips batches by rank")])


def _by_prepare(program: Program) -> Iterator[Division]:
    made = {n.object.key: n for n in program.of(LoaderMade) if n.object is not None}
    for node in program.of(Prepare):
        prepares = framework.one(node.framework)
        for value in node.args.values():
            loader = next((made[o.key] for o in options(value) if isinstance(o, Obj) and o.key in made), None)
            if loader is None:
                continue
            sampler = any(_is_distributed(s) for s in samplers_of(loader))
            cut = cut_by_rank(loader.args["dataset"]) if "dataset" in loader.args else ""
            if prepares.shards_again and (sampler or cut):
                what = "has a DistributedSampler" if sampler else f"holds this rank's own part ({cut})"
                message = (
                    f"`{value.text or 'The loader'}` {what} and `{node.text.split('(')[0]}()` shards it again: most of the data "
                    "is never used."
                )
                yield Division(node, message, [Related(loader.span.path, loader.span.line, "loader", "divided here first")])
            elif prepares.injects_samplers and cut and not sampler and not _switched_off(program):
                yield Division(node, _INJECTED.format(cut=cut), [Related(loader.span.path, loader.span.line, "loader", "made")])


def _by_injected_samplers(program: Program) -> Iterator[Division]:
    if not program.frameworks.injects_samplers or _switched_off(program) or program.has(Prepare, Wrap):
        return
    for loader in program.of(LoaderMade):
        cut = cut_by_rank(loader.args["dataset"]) if "dataset" in loader.args else ""
        iterable = any(isinstance(o, Obj) and o.kind == "iterable-dataset" for o in options(loader.args.get("dataset", Unknown())))
        if cut and not iterable and not any(_is_distributed(s) for s in samplers_of(loader)):
            yield Division(loader, _INJECTED.format(cut=cut), [])


def _is_distributed(value: Value) -> bool:
    return isinstance(value, Obj) and value.kind == "sampler" and value.cls == DISTRIBUTED


def _over_all_ranks(node: SamplerMade) -> bool:
    """Whether a sampler divides among all ranks: by default, or by the world size."""
    replicas = node.args.get("num_replicas")
    return replicas is None or evaluate(replicas, World(1, 4, 2)) == 4


def _skips(guard: Guard, leaf: str) -> bool:
    """Whether a condition lets a rank pass in one of W turns of a loop: `index % world_size == rank`."""
    return (
        bool(leaf)
        and "rank" in guard.test.taint
        and leaf in set(loop_leaves(guard.test))
        and any(operation_of(part) == "%" for part in behind(guard.test))
    )


def _switched_off(program: Program) -> bool:
    return any(is_given(program, switch, False) for switch in _SWITCHES)
