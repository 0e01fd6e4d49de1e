"""The commands of one job, typed on its several nodes, and what does not fit between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ddp_audit.launch.model import Launch
from ddp_audit.lazy_regex import lazy_compile

Lines = Callable[[str], Sequence[str]]

_NEAR = 14  # lines between the commands of two nodes
_GOES_ON = lazy_compile(
    r"\.\.\.|…|\betc\b|\band so on\b|\bsimilar(?:ly)?\b|\brepeat\b|\bother (?:nodes?|machines?|hosts?|workers?)\b|\bremaining\b"
    r"|\beach (?:node|machine|host)\b|\bevery (?:node|machine|host)\b|\brest of\b|\bchange\b|\bincrement\b",
    re.IGNORECASE,
)
_ANOTHER_NODE = lazy_compile(r"\b(?:second|other|next|another|worker|slave|(?:node|machine|host) ?[12]|rank ?1)\b", re.IGNORECASE)
# Options of a script that may well differ between nodes.
_OF_NODE = lazy_compile(r"rank|node|host|machine|addr|port|url|name|dir|log|out|device|gpu|seed|shard|part|id$|save|cache", re.I)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something about launches that is not a job, or another than is meant. `message` and `why` are whole sentences."""

    kind: str
    launches: tuple[Launch, ...]  # the first one is where it is reported
    message: str
    why: str
    remedy: str
    severity: str = "warning"
    confidence: str = "likely"
    others: tuple[tuple[str, int, str, str], ...] = field(default=())  # further places: path, line, role, text
    about: str = ""  # the field of the first launch that it is about


def jobs_of(launches: Sequence[Launch], lines: Lines) -> list[list[Launch]]:
    """The commands of each job that has several, in their order: one document, one number of nodes, a rank each."""
    found: list[list[Launch]] = []
    for launch in launches:
        if not isinstance(launch.node_rank, int) or launch.path is None or launch.nnodes == 1:
            continue
        if found and _belongs(found[-1], launch, lines):
            found[-1].append(launch)
        else:
            found.append([launch])
    return [job for job in found if len(job) > 1]


def _belongs(job: list[Launch], launch: Launch, lines: Lines) -> bool:
    last = job[-1]
    assert isinstance(launch.node_rank, int) and launch.line is not None and last.line is not None
    if launch.path != last.path or launch.nnodes != last.nnodes or launch.kind != last.kind:
        return False
    if launch.line - (last.end_line or last.line) > _NEAR and launch.block != last.block:
        return False
    ranks = [one.node_rank for one in job]
    if launch.node_rank in ranks:
        between = " ".join(lines(launch.path or "")[(last.end_line or last.line) : launch.line - 1])
        same = (launch.script, launch.script_args) == (last.script, last.script_args)
        return same and len(set(ranks)) == len(ranks) and bool(_ANOTHER_NODE.search(between))
    return launch.script == last.script or launch.node_rank == max(rank for rank in ranks if isinstance(rank, int)) + 1


def job_faults(job: Sequence[Launch], lines: Lines) -> Iterator[Fault]:
    """What does not fit between the commands of one job."""
    first, commands = job[0], tuple(job)
    ranks = [launch.node_rank for launch in job if isinstance(launch.node_rank, int)]
    repeated = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    for rank in repeated:
        twice = tuple(launch for launch in job if launch.node_rank == rank)
        yield Fault(
            "node-rank-repeated",
            twice,
            f"The commands of lines {_listed([launch.line for launch in twice])} start two nodes of one job, and both say that "
            f"they are node {rank}.",
            "Two nodes with one rank give their processes the same ranks: the ranks of the other node are never there, and the "
            "rendezvous fails or waits for them until it times out.",
            "give every node a rank of its own, from 0 on",
        )
    if isinstance(first.nnodes, int) and not repeated:
        yield from _missing_ranks(commands, ranks, first.nnodes, lines)
    for name, field_name in (("address", "master_addr"), ("port", "master_port")):
        values = {str(value) for launch in job if (value := getattr(launch, field_name)) is not None and "$" not in str(value)}
        if len(values) > 1:
            plural = "addresses" if name == "address" else "ports"
            shown = " and ".join(f"{getattr(one, field_name)} (line {one.line})" for one in _one_of_each(job, field_name))
            yield Fault(
                f"{name}-differs",
                commands,
                f"The commands of the nodes of one job name different rendezvous {plural}: {shown}.",
                f"All nodes must meet at one address and port. With another {name} a node waits where nobody comes, and the "
                "others wait for it, until the rendezvous times out.",
                f"use the {name} of node 0 in the commands of all nodes",
            )
    yield from _different_work(commands)


def _missing_ranks(commands: tuple[Launch, ...], ranks: list[int], nnodes: int, lines: Lines) -> Iterator[Fault]:
    first, last = commands[0], commands[-1]
    missing = [rank for rank in range(nnodes) if rank not in ranks]
    around = " ".join(lines(first.path or "")[max(0, (first.line or 1) - 4) : (last.end_line or last.line or 0) + 4])
    if not missing or any(rank >= nnodes for rank in ranks) or _GOES_ON.search(around):
        return
    said = _listed(missing)
    yield Fault(
        "node-rank-missing",
        commands,
        f"The job has {nnodes} nodes, and the commands of lines {_listed([launch.line for launch in commands])} start the nodes "
        f"{_listed(sorted(ranks))}; node{'s' if len(missing) > 1 else ''} {said} "
        f"{'are' if len(missing) > 1 else 'is'} started by none.",
        "The nodes that are there wait for the others until the rendezvous times out.",
        f"start node {said} too, or say --nnodes={len(ranks)}",
    )


def _different_work(commands: tuple[Launch, ...]) -> Iterator[Fault]:
    """Nodes of one job that run different scripts, or one script with different settings."""
    first = commands[0]
    for other in commands[1:]:
        if other.script != first.script:
            what = f"{first.script} (line {first.line}) on one node and {other.script} (line {other.line}) on another"
            yield Fault(
                "script-differs",
                (first, other),
                f"The commands of one job start different scripts: {what}.",
                "All ranks of a job must run the same collectives in the same order, which two scripts do only by accident.",
                "start the same script on every node",
            )
            return
        mine, theirs = _settings(first), _settings(other)
        differing = [name for name in dict.fromkeys([*mine, *theirs]) if mine.get(name) != theirs.get(name)]
        differing = [name for name in differing if not _OF_NODE.search(name) and "$" not in f"{mine.get(name)}{theirs.get(name)}"]
        if differing:
            name = differing[0]
            shown = f"{_shown(name, mine)} (line {first.line}) and {_shown(name, theirs)} (line {other.line})"
            yield Fault(
                "settings-differ",
                (first, other),
                f"The commands of one job give {first.script} different settings on its nodes: {shown}.",
                "Every rank computes from its own arguments. Where batch, model or number of steps differ between ranks, they "
                "issue other collectives or weigh their samples differently, and nothing says so.",
                "give every node the same arguments",
            )
            return


def _settings(launch: Launch) -> dict[str, str]:
    """The script's arguments by name; what has none by its position."""
    found: dict[str, str] = {}
    position, at, args = 0, 0, launch.script_args
    while at < len(args):
        word = args[at]
        name, equals, value = word.partition("=")
        if word.startswith("-") and not equals and at + 1 < len(args) and not args[at + 1].startswith("-"):
            at += 1
            value = args[at]
        elif not word.startswith("-") and not equals:
            name, value, position = f"argument {position + 1}", word, position + 1
        found[name] = value
        at += 1
    return found


def _shown(name: str, settings: dict[str, str]) -> str:
    if name not in settings:
        return f"no {name}"
    return settings[name] if name.startswith("argument ") else f"{name} {settings[name]}".strip()


def _one_of_each(job: Sequence[Launch], field_name: str) -> list[Launch]:
    found: dict[str, Launch] = {}
    for launch in job:
        if getattr(launch, field_name) is not None:
            found.setdefault(str(getattr(launch, field_name)), launch)
    return list(found.values())


def _listed(items: Sequence[object]) -> str:
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]
