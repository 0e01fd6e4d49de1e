"""Ranks and world sizes that a script gives to init_process_group by itself, against those of the launch that starts it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_audit.launch.environment import Setting
from ddp_audit.launch.model import TORCH_LAUNCH, TORCH_RUN, TORCHRUN, Launch
from ddp_audit.launch.scaling import starts
from ddp_audit.program.model import Program, first_of_each_place
from ddp_audit.program.nodes import Init
from ddp_audit.program.values import World, evaluate, holds

_MOST = 256  # processes of a launch that are looked at


def rank_faults(program: Program, launches: Iterable[Launch]) -> Iterator[Setting]:
    """The process groups whose ranks are not those of a job of several nodes that starts the script, one for each place."""
    jobs = [(launch, worlds) for launch in launches if starts(launch, program.entry) and (worlds := _several_nodes(launch))]
    for node in first_of_each_place(program.of(Init)):
        if "rank" in node.args:
            yield from next((found for launch, worlds in jobs if (found := list(_repeated(node, launch, worlds)))), [])


def _several_nodes(launch: Launch) -> list[World]:
    """What each process of a launch on several nodes sees; empty for other launches, and where a number is open."""
    nodes, each = launch.nnodes, launch.nproc_per_node
    if launch.kind not in (TORCHRUN, TORCH_RUN, TORCH_LAUNCH) or not isinstance(nodes, int) or not isinstance(each, int):
        return []
    return [World(rank, nodes * each, each) for rank in range(nodes * each)] if nodes > 1 and nodes * each <= _MOST else []


def _repeated(node: Init, launch: Launch, worlds: list[World]) -> Iterator[Setting]:
    if any(holds(guard.test, world) is not guard.polarity for guard in node.guards for world in worlds):
        return
    ranks = [evaluate(node.args["rank"], world) for world in worlds]
    if not all(type(rank) is int and rank >= 0 for rank in ranks):
        return
    missing = sorted(set(range(len(worlds))) - set(ranks))
    twice = next((rank for rank in sorted(set(ranks)) if ranks.count(rank) > 1), None)
    if not missing or twice is None:
        return
    nodes, each = worlds[0].world_size // worlds[0].local_world_size, worlds[0].local_world_size
    name = node.args["rank"].text or "the rank"
    where = f"the launch of {launch.where()}" if launch.path is not None else "this launch"
    absent = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {missing[0]} to {missing[-1]}"
    yield Setting(
        node.span,
        f"On the {nodes} nodes of {where}, with {each} process{'es' if each > 1 else ''} each, `{name}` gives "
        f"{ranks.count(twice)} processes the rank {twice}, and no process has {absent}.",
        "What is given to init_process_group goes before the RANK that the launcher sets. The local rank begins with 0 on every "
        "node, so it is the rank only in a job of one node; with several the rendezvous is spoiled, and ranks wait for others that "
        "never come or fail while they connect.",
        "leave rank and world_size to the launcher: init_process_group(backend)",
    )
