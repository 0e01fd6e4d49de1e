"""The share of the data that a sampler is given on each rank of a job, what is wrong with the shares, and how to fix them."""

from __future__ import annotations

from ddp_audit.findings import Fix
from ddp_audit.tree.nodes import Init, Program, SamplerMade
from ddp_audit.tree.questions import always_runs
from ddp_audit.tree.values import Const, Value, World, defaults_in, evaluate
from ddp_audit_rules.facts.one_node import ONE_NODE, TWO_NODES


def shares_of(node: SamplerMade, worlds: list[World]) -> list[tuple[int, int]] | None:
    """The number of replicas and the rank that a sampler is given on each rank of a job; None where one is not known."""
    found: list[tuple[int, int]] = []
    for world in worlds:
        pair = [
            _number(node.args.get("num_replicas"), world, world.world_size),
            _number(node.args.get("rank"), world, world.rank),
        ]
        if pair[0] is None or pair[1] is None:
            return None
        found.append((pair[0], pair[1]))
    return found


def wrong_with(shares: list[tuple[int, int]]) -> str:
    """What is wrong with the shares of the ranks of a job, in words; empty where each has a part of its own."""
    replicas, ranks = {r for r, _ in shares}, [rank for _, rank in shares]
    if len(replicas) > 1:
        return "divides the data by numbers that differ between ranks"
    count = replicas.pop()
    if any(rank >= count for rank in ranks):
        return "is given a rank outside of its replicas, and raises ValueError there"
    if sorted(ranks) == list(range(len(shares))) and count == len(shares):
        return ""
    if set(ranks) == set(range(count)):
        return "gives several ranks the same part, so each epoch visits samples more than once"
    return "gives several ranks the same part and some parts to no rank"


def numbers_of_group(program: Program, node: SamplerMade, given: list[str]) -> Fix | None:
    """The numbers of the process group in the place of those that are not, where the group surely exists by then."""
    init = next(program.of(Init), None)
    if init is None or init.number > node.number or not always_runs(program, init) or program.frameworks.numbers_processes:
        return None
    right = {
        "num_replicas": lambda world: world.world_size,
        "rank": lambda world: world.rank,
    }
    worlds = [*ONE_NODE, *TWO_NODES]
    wrong = [name for name in given if any(_number(node.args[name], world, -1) != right[name](world) for world in worlds)]
    calls = {"num_replicas": "num_replicas=dist.get_world_size()", "rank": "rank=dist.get_rank()"}
    return Fix("unsafe", f"pass {' and '.join(calls[name] for name in wrong)}", " ".join(wrong)) if wrong else None


def _number(value: Value | None, world: World, default: int) -> int | None:
    if value is None or (isinstance(value, Const) and value.value is None):
        return default
    if any(default.open for default in defaults_in(value)):
        return None  # made of options: what they are set to is not known
    result = evaluate(value, world)
    return result if isinstance(result, int) and not isinstance(result, bool) else None
