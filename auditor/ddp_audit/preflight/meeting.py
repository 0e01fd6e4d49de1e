"""What the roll of the nodes means: a wrong port, another number of nodes, a node that has not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_audit.preflight.problems import ERROR, WARNING, Problem, listed, plain
from ddp_audit.preflight.rollcall import IN_USE, LOST, REFUSED, STRANGER, UNKNOWN, Meeting, Roll


def meeting_problems(meeting: Meeting, roll: Roll | None, me: dict[str, Any], others: list[dict[str, Any]]) -> Iterator[Problem]:
    """What kept the nodes from meeting. `roll` is None where this node's job has no other one.

    `others` are launchers of this script that write into the same folder as this one, `me`, and were there at the same time.
    """
    came = {node["run"] for node in roll.nodes} if roll is not None else set()
    unmet = [other for other in others if other.get("run") not in came and _is_whole(other)]
    if roll is None:
        # Another job of one node may be at the same address of another machine.
        yield from _contradictions([me, *(other for other in unmet if _is_at(meeting, other) and other["most"] > 1)])
        return
    if roll.complete:
        if not roll.reaches_itself:
            yield _not_here(meeting)
        yield from _processes(roll.nodes)
        return
    contradictions = list(_contradictions([*roll.nodes, *(other for other in unmet if _is_at(meeting, other))]))
    if roll.failure == IN_USE:
        yield from contradictions
        if contradictions:
            return
        yield Problem(
            "port-in-use",
            ERROR,
            f"Port {meeting.port} of node 0 is in use, so the rendezvous cannot listen there.",
            "End the job that has the port, or choose another port on all nodes.",
            nodes=("node 0",),
        )
        return
    elsewhere = list(_elsewhere(meeting, unmet))
    yield from contradictions
    yield from elsewhere
    if roll.is_host and not roll.reaches_itself:
        yield _not_here(meeting)
    elif not contradictions and len(roll.nodes) + len(elsewhere) < meeting.least:
        yield _missing(meeting, roll) if roll.is_host or not roll.failure else _unreached(meeting, roll)


def name_of(node: dict[str, Any]) -> str:
    """`node 1 (gpu02)`, or the host where the rendezvous deals the ranks out."""
    host = plain(node.get("host", "?"), 60)
    return f"node {node['rank']} ({host})" if isinstance(node.get("rank"), int) else host


def _not_here(meeting: Meeting) -> Problem:
    return Problem(
        "address-not-here",
        ERROR,
        f"Node 0 does not reach itself at {meeting.place}: the address is another machine's, or it is blocked.",
        "Name an address of node 0 that every node reaches.",
        nodes=("node 0",),
    )


def _contradictions(nodes: list[dict[str, Any]]) -> Iterator[Problem]:
    """Nodes that came and are not of one job."""
    counts: dict[str, list[str]] = {}
    ranks: dict[int, list[str]] = {}
    for node in nodes:
        counts.setdefault(_count(node), []).append(name_of(node))
        if node["rank"] is not None:
            ranks.setdefault(node["rank"], []).append(plain(node["host"], 60))
    if len(counts) > 1:
        said = "; ".join(f"{listed(names)}: {count}" for count, names in counts.items())
        yield Problem(
            "nodes-differ",
            ERROR,
            f"The nodes do not agree on their number ({said}).",
            "Give every node the same --nnodes.",
            nodes=tuple(name for names in counts.values() for name in names),
        )
    for rank, hosts in ranks.items():
        if len(hosts) > 1:
            yield Problem(
                "node-rank-repeated",
                ERROR,
                f"{len(hosts)} nodes say that they are node {rank}: {listed(hosts)}.",
                "Give every node its own --node-rank, from 0 on.",
                nodes=(f"node {rank}",),
            )


def _processes(nodes: list[dict[str, Any]]) -> Iterator[Problem]:
    """Nodes that start different numbers of processes: torchrun allows it, and then numbers the ranks by what each node has."""
    counts: dict[str, list[str]] = {}
    for node in nodes:
        counts.setdefault(plain(node.get("processes"), 40), []).append(name_of(node))
    if len(counts) > 1:
        said = "; ".join(f"{listed(names)}: {count}" for count, names in counts.items())
        yield Problem(
            "processes-differ",
            WARNING,
            f"The nodes start different numbers of processes ({said}).",
            "Give every node the same --nproc-per-node, unless that is meant.",
            nodes=tuple(name for names in counts.values() for name in names),
        )


def _is_whole(node: dict[str, Any]) -> bool:
    """Whether what a file of the folder says of a launcher has the fields that are read."""
    numbers = all(type(node.get(key)) is int for key in ("port", "least", "most")) and type(node.get("rank")) in (int, type(None))
    return numbers and all(isinstance(node.get(key), str) for key in ("run", "host", "address"))


def _is_at(meeting: Meeting, node: dict[str, Any]) -> bool:
    return (node["address"], node["port"]) == (meeting.address, meeting.port)


def _elsewhere(meeting: Meeting, unmet: list[dict[str, Any]]) -> Iterator[Problem]:
    """Nodes that wait at another place, which the shared folder tells."""
    for other in unmet:
        place = f"{plain(other['address'], 100)}:{other['port']}"
        if other["port"] != meeting.port:
            kind, what, fix = "port-differs", "port", "--master-port"
        elif other["address"] != meeting.address:
            kind, what, fix = "address-differs", "address", "--master-addr"
        else:
            continue
        yield Problem(
            kind,
            ERROR,
            f"{_capital(name_of(other))} waits at another {what}: {place} instead of {meeting.place}.",
            f"Give every node the same {fix}.",
            nodes=(name_of(other),),
        )


def _missing(meeting: Meeting, roll: Roll) -> Problem:
    there = {node["rank"] for node in roll.nodes}
    waited = f"{roll.waited:.0f} s" if roll.is_host else "the time that the host waits"
    if meeting.rank is None:
        what = f"{len(roll.nodes)} of {meeting.least} nodes have come to {meeting.place} after {waited}: " + listed(
            [name_of(node) for node in roll.nodes]
        )
        return Problem("node-missing", ERROR, what + ".", "Start the other nodes, or lower --nnodes.")
    absent = [rank for rank in range(meeting.least) if rank not in there]
    names = f"node {absent[0]}" if len(absent) == 1 else f"nodes {listed(absent)}"
    have = "has" if len(absent) == 1 else "have"
    return Problem(
        "node-missing",
        ERROR,
        f"{_capital(names)} {have} not come to {meeting.place} after {waited} ({len(roll.nodes)} of {meeting.least} are there).",
        f"Start {names}, check that {'it uses' if len(absent) == 1 else 'they use'} this address and port, or lower --nnodes.",
        nodes=tuple(f"node {rank}" for rank in absent),
    )


def _unreached(meeting: Meeting, roll: Roll) -> Problem:
    """Why this node did not reach the one that hosts the roll."""
    me, after = name_of(roll.nodes[0]), f"after {roll.waited:.0f} s"
    kind, what, fix = {
        REFUSED: (
            "port-refused",
            f"reaches the machine {meeting.address}, but nobody listens at port {meeting.port} {after}",
            "Check that node 0 is started, and that its port is the same.",
        ),
        UNKNOWN: (
            "address-unknown",
            f"cannot resolve the name {meeting.address}: {plain(roll.detail)}",
            "Name node 0 as this node knows it, or by its IP address.",
        ),
        STRANGER: (
            "stranger-at-port",
            f"finds another program at {meeting.place}: it does not answer as a preflight does",
            "Choose a free port, or start the preflight on node 0 and not the job.",
        ),
        LOST: (
            "host-lost",
            f"lost the preflight at {meeting.place}: it ended before it sent the list of nodes",
            "Look at what node 0 printed.",
        ),
    }.get(
        roll.failure,
        (
            "address-unreachable",
            f"does not reach {meeting.place} {after}: {plain(roll.detail)}",
            "Check the address, the route and the firewall between the nodes.",
        ),
    )
    return Problem(kind, ERROR, f"{_capital(me)} {what}.", fix, nodes=(me,))


def _count(node: dict[str, Any]) -> str:
    return f"--nnodes {node['least']}" if node["least"] == node["most"] else f"--nnodes {node['least']}:{node['most']}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
