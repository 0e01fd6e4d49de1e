"""What the measurements of all ranks come to, and what is wrong with them: sums, messages, slow ranks and links, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from ddp_audit.preflight.problems import ERROR, WARNING, Problem, rank_list
from ddp_audit.preflight.verdicts import Known

_SLOW_RANK = 4.0  # times the fastest rank; on a machine with six processes a core, the ranks differed by up to 1.7
_SLOW_LINK = 3.0  # times slower than the median of at least three pairs
_LEAST_PAIRS = 3
_CLOCK = 1.0  # seconds


def measurements(known: Known) -> dict[str, Any]:
    """The measurements of the job, as the documented JSON has them; empty where some rank has none."""
    each = {rank: state["measured"] for rank, state in known.states.items() if "measured" in state}
    if not each or len(each) != known.plan.get("world"):
        return {}
    first = each[min(each)]
    rows = []
    for number, row in enumerate(first["all_reduce"]):
        wrong = {rank: one["all_reduce"][number].get("wrong", 0) for rank, one in each.items()}
        rows.append({**row, "wrong": [rank for rank, count in wrong.items() if count]})
    found: dict[str, Any] = {
        "first": max(one["first"] for one in each.values()),
        "all_reduce": rows,
        "pairs": sorted((pair for one in each.values() for pair in one.get("pairs", ())), key=lambda pair: pair["ranks"]),
        "compute": {rank: one["compute"] for rank, one in each.items()},
        "clock": {rank: _offset(one["clock"], first["clock"]) for rank, one in each.items()},
    }
    rings = {rank: one["ring"] for rank, one in each.items() if "ring" in one}
    if rings:
        wrong_messages = [[ring["from"], rank] for rank, ring in rings.items() if ring["wrong"]]
        found["ring"] = {"seconds": max(ring["seconds"] for ring in rings.values()), "wrong": wrong_messages}
    return found


def _offset(mine: list[float], others: list[float]) -> float:
    return median(a - b for a, b in zip(mine, others, strict=True))


def measured_problems(known: Known, found: dict[str, Any]) -> Iterator[Problem]:
    """What stands out of the measurements."""
    if not found:
        return
    for row in found["all_reduce"]:
        if row["wrong"]:
            yield Problem(
                "wrong-sum",
                ERROR,
                f"The all-reduce of {row['elements']:,} elements gives {rank_list(row['wrong'])} a wrong sum.",
                "Test the GPUs and the network of these ranks; NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1 tells which path it is.",
                tuple(row["wrong"]),
            )
    for sender, receiver in found.get("ring", {}).get("wrong", ()):
        yield Problem(
            "wrong-message",
            ERROR,
            f"What rank {sender} sent to rank {receiver} arrived changed.",
            "Test the link between these two.",
            (sender, receiver),
        )
    yield from _slow_ranks(known, found["compute"])
    yield from _slow_links(known, found["pairs"])
    yield from _clocks(known, found["clock"])


def _slow_ranks(known: Known, compute: dict[int, float]) -> Iterator[Problem]:
    fastest = min(compute.values())
    slow = [rank for rank, seconds in compute.items() if seconds > _SLOW_RANK * fastest]
    if slow and len(slow) <= len(compute) / 2:
        for rank in slow:
            yield Problem(
                "slow-rank",
                WARNING,
                f"Rank {rank} ({known.node(rank)}) computes {compute[rank] / fastest:.1f} times slower than the fastest rank.",
                "Look for other load, a low clock or a lack of cores there; every step waits for it.",
                (rank,),
            )


def _slow_links(known: Known, pairs: list[dict[str, Any]]) -> Iterator[Problem]:
    if len(pairs) < _LEAST_PAIRS:
        return
    usual = median(pair["busbw"] for pair in pairs)
    slow = [pair for pair in pairs if pair["busbw"] * _SLOW_LINK < usual]
    ends = [rank for pair in slow for rank in pair["ranks"]]
    common = [rank for rank in dict.fromkeys(ends) if len(slow) > 1 and ends.count(rank) == len(slow)]
    if common:
        worst = min(pair["busbw"] for pair in slow)
        yield Problem(
            "slow-link",
            WARNING,
            f"All slow links lead to {rank_list(common)} ({known.node(common[0])}): {worst / 1e9:.2f} GB/s at worst, "
            f"and {usual / 1e9:.2f} elsewhere.",
            "Check the network adapter and cable of that node, and which interface it uses.",
            tuple(common),
        )
        return
    for pair in slow:
        first, second = pair["ranks"]
        yield Problem(
            "slow-link",
            WARNING,
            f"The link of rank {first} ({known.node(first)}) and rank {second} ({known.node(second)}) has "
            f"{pair['busbw'] / 1e9:.2f} GB/s; the median of all is {usual / 1e9:.2f}.",
            "Check the network between these two nodes.",
            (first, second),
        )


def _clocks(known: Known, offsets: dict[int, float]) -> Iterator[Problem]:
    for rank, offset in offsets.items():
        host = known.facts[rank]["host"]
        if abs(offset) > _CLOCK and known.states[rank].get("leads") and host != known.facts[0]["host"]:
            yield Problem(
                "clock-offset",
                WARNING,
                f"The clock of {known.node(rank)} is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} that of rank 0.",
                "Synchronise the clocks (chrony, ntpd): logs and traces of the nodes cannot be compared.",
                (rank,),
                (known.node(rank),),
            )
