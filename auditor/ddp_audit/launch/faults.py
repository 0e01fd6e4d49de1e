"""What is wrong with a single launch: ports, addresses, node ranks, and more processes than the surroundings have room for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ddp_audit.launch.jobs import Fault, Lines
from ddp_audit.launch.model import DEEPSPEED, PYTHON, SPAWN, SRUN, TORCH_LAUNCH, WORLD_SIZE, Launch
from ddp_audit.lazy_regex import lazy_compile

_QUAD = lazy_compile(r"\d+(?:\.\d+){3,}")
_LOCAL = lazy_compile(r"(?:localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0)$")
_ONE_MACHINE = lazy_compile(
    r"\b(?:same|single|one|this) (?:machine|node|host|server|computer)\b|\blocal(?:ly| test)\b|\bsimulat\w+|\bemulat\w+",
    re.IGNORECASE,
)
_EXAMPLE = lazy_compile(r"\b(?:example|e\.g\.|placeholder|replace|your|dummy|fake|sample)\b", re.IGNORECASE)
_NO_GPU = lazy_compile(r"\bcpu\b|\bgloo\b", re.IGNORECASE)


def launch_faults(launch: Launch, lines: Lines) -> Iterator[Fault]:
    """The faults of one command by itself."""
    if launch.kind in (PYTHON, WORLD_SIZE, SPAWN):
        return
    around = _around(launch, lines)
    yield from _port(launch)
    yield from _address(launch, around)
    yield from _node_rank(launch)
    yield from _room(launch)
    yield from _tasks(launch)


def _around(launch: Launch, lines: Lines) -> str:
    """The text about a command: its own lines and those before it."""
    if launch.path is None or launch.line is None:
        return launch.text
    return " ".join(lines(launch.path)[max(0, launch.line - 5) : launch.end_line or launch.line])


def _several_nodes(launch: Launch) -> bool:
    return isinstance(launch.nnodes, int) and launch.nnodes > 1


def _port(launch: Launch) -> Iterator[Fault]:
    port = launch.master_port
    if not isinstance(port, int):
        return
    if port > 65_535:
        yield Fault(
            "port-out-of-range",
            (launch,),
            f"The rendezvous port is {port}, and a port is at most 65535.",
            "No process can listen there, so the rendezvous fails on every node.",
            "take a free port between 1024 and 65535",
            about="master_port",
        )
    elif port == 0 and _several_nodes(launch):
        yield Fault(
            "port-is-open",
            (launch,),
            f"The rendezvous port is 0 for {launch.nnodes} nodes: each node would take another free one.",
            "Port 0 lets the system choose, which the other nodes cannot know; it is meant for jobs of one node.",
            "name one port that is free on node 0",
            about="master_port",
        )


def _address(launch: Launch, around: str) -> Iterator[Fault]:
    address = launch.master_addr or ""
    parts = [int(part) for part in address.split(".")] if _QUAD.fullmatch(address) else []
    if parts and (len(parts) != 4 or max(parts) > 255):
        why = f"{max(parts)} > 255" if len(parts) == 4 else f"it has {len(parts)} numbers instead of 4"
        example = bool(_EXAMPLE.search(around))
        yield Fault(
            "impossible-address",
            (launch,),
            f"{address} is not a valid IPv4 address ({why})" + (": the command fails as written." if example else "."),
            "The name does not resolve, so no node finds the rendezvous and each one gives up.",
            "use the address of node 0, or a variable or <placeholder> that does not look like an address",
            severity="info" if example else "warning",
            about="master_addr",
        )
    elif _LOCAL.match(address) and _several_nodes(launch) and not _ONE_MACHINE.search(around):
        yield Fault(
            "local-address",
            (launch,),
            f"The job has {launch.nnodes} nodes, and the rendezvous is at {address}, which on every node is that node itself.",
            "Each node waits at its own address for the others, until the rendezvous times out. It is right only where the "
            "nodes are processes on one machine.",
            "name the address of node 0 on all nodes",
            about="master_addr",
        )


def _node_rank(launch: Launch) -> Iterator[Fault]:
    rank, nodes = launch.node_rank, launch.nnodes
    if isinstance(rank, int) and isinstance(nodes, int) and rank >= nodes and (launch.nnodes_stated or rank > 0):
        said = f"{nodes} node{'s' if nodes > 1 else ''}"
        yield Fault(
            "node-rank-too-large",
            (launch,),
            f"The node has rank {rank} in a job of {said}: ranks run from 0 to {nodes - 1}"
            + ("." if launch.nnodes_stated else f" ({launch.origin('nnodes') or 'no number of nodes is given'})."),
            "The ranks of its processes lie outside of the job, so the rendezvous refuses them or waits for the missing ones.",
            f"say how many nodes there are, or a rank below {nodes}",
            about="node_rank",
        )


def _room(launch: Launch) -> Iterator[Fault]:
    given, wanted = launch.given_gpus, launch.nproc_per_node
    if given is None or not isinstance(wanted, int) or wanted <= given or _NO_GPU.search(launch.text):
        return
    yield Fault(
        "more-processes-than-gpus",
        (launch,),
        f"{wanted} processes start on each node, which has {given} GPU{'s' if given > 1 else ''} ({launch.gpus_from}).",
        "Process number "
        + f"{given} and those after it find no device of their own: choosing one by the local rank fails with an invalid device "
        "ordinal, and two ranks of NCCL on one device are refused.",
        f"start {given} process{'es' if given > 1 else ''} on a node, or ask for {wanted} GPUs",
        about="nproc_per_node",
    )


def _tasks(launch: Launch) -> Iterator[Fault]:
    """A launcher that srun or mpirun starts more or less often than there are nodes in its job."""
    nodes, tasks = launch.nnodes, launch.tasks
    if launch.through and isinstance(tasks, int) and isinstance(nodes, int) and tasks != nodes:
        many = tasks > nodes
        each = f", {launch.tasks_per_node} on each node," if (launch.tasks_per_node or 1) > 1 else ""
        if nodes == 1:
            what = f"so {tasks} jobs of {launch.describe_world()} start at the same time, and they do not know of each other"
        elif many:
            what = f"so {tasks} agents come to a rendezvous of {nodes}"
        else:
            what = f"so {nodes - tasks} of the {nodes} nodes never come"
        yield Fault(
            "tasks-and-nodes",
            (launch,),
            f"{launch.through} starts the launcher {tasks} times{each} for a job of {_nodes(nodes)}, {what}.",
            "The launcher starts the processes of a whole node by itself, so it is started once on each node.",
            "start one task on each node (srun --ntasks-per-node=1), and give the launcher the number of nodes",
            about="nnodes",
        )
    elif launch.given_nodes is not None and isinstance(nodes, int) and nodes != launch.given_nodes and launch.kind != SRUN:
        waits = nodes > launch.given_nodes
        yield Fault(
            "nodes-and-room",
            (launch,),
            f"The launcher expects {nodes} node{'s' if nodes > 1 else ''}, and there are {launch.given_nodes} "
            f"({launch.nodes_from}).",
            "It waits for nodes that never come, until the rendezvous times out."
            if waits
            else "The nodes beyond the first ones stay out of the job, or disturb its rendezvous.",
            f"say --nnodes={launch.given_nodes}",
            about="nnodes",
        )


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def local_rank_fault(launch: Launch, options: Sequence[str], strict: bool, place: tuple[str, int]) -> Fault | None:
    """A launcher that hands the local rank over as an argument, to a script whose parser does not know it under that name.

    `options` are the spellings that the parser knows, `place` is where it parses.
    """
    if not launch.passes_local_rank or not strict:
        return None
    spelled = "--local_rank" if launch.kind == DEEPSPEED else "--local-rank"
    # argparse takes an unambiguous beginning, but not another spelling of the dash.
    if any(option == spelled or option.startswith(spelled) for option in options):
        return None
    known = [option for option in options if option.replace("_", "-") == "--local-rank"]
    has = f"knows only {known[0]}" if known else "knows no such option"
    name = "torch.distributed.launch (from torch 2.0 on)" if launch.kind == TORCH_LAUNCH else "deepspeed"
    return Fault(
        "local-rank-argument",
        (launch,),
        f"{name} adds {spelled}=N to the arguments of the script, whose parser {has}, so every process ends with "
        "'unrecognized arguments'.",
        "argparse refuses what it does not know. torchrun hands nothing over and sets LOCAL_RANK in the environment.",
        "start it with torchrun and read LOCAL_RANK from the environment, or accept both spellings of the option",
        others=((place[0], place[1], "parser", "the arguments are parsed here"),),
    )
