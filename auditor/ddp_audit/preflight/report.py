"""The report of a preflight: as an object, documented on the page on the preflight, and as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddp_audit.preflight.launcher import Preflight
from ddp_audit.preflight.measured import measured_problems, measurements
from ddp_audit.preflight.meeting import meeting_problems, name_of
from ddp_audit.preflight.problems import ERROR, INFO, Problem, fails, in_order, listed, plain, rank_list
from ddp_audit.preflight.verdicts import Known, known_of, rank_problems

VERSION = 1
_RANKS_SHOWN = 32
_PAIRS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known, and what is wrong. `whole` says that it is of all ranks, and not of those of one node alone."""

    flight: Preflight
    known: Known
    measured: dict[str, Any]
    problems: list[Problem]
    whole: bool

    @property
    def exit_code(self) -> int:
        """1 where something is wrong, else 0."""
        return int(fails(self.problems))


def report_of(flight: Preflight) -> Report:
    """Puts together what one node knows."""
    known = known_of(flight.job, flight.ranks)
    problems: list[Problem] = []
    if flight.meeting is not None:
        problems += meeting_problems(flight.meeting, flight.roll, flight.me, flight.others)
    if flight.reading is not None:
        problems += flight.reading.problems
    measured = measurements(known)
    if flight.started:
        problems += _command_problems(flight, known)
        problems += rank_problems(known)
        problems += measured_problems(known, measured)
    return Report(flight, known, measured, in_order(problems), flight.job is not None)


def _command_problems(flight: Preflight, known: Known) -> Iterator[Problem]:
    """A command that started no rank, or other ones than it says."""
    if not known.states:
        yield _no_rank(flight)
        return
    worlds = {state["facts"]["world_size"] for state in known.states.values() if "facts" in state}
    size = flight.reading.launch.world_size if flight.reading is not None else flight.launch.world_size
    if size is not None and worlds and worlds != {size}:
        yield Problem(
            "world-differs",
            ERROR,
            f"The command says a world size of {size}, but the ranks see {listed(sorted(worlds))}.",
            "Check what starts the ranks: a launcher inside another one, or variables of an earlier job.",
        )


def _no_rank(flight: Preflight) -> Problem:
    failed = [one for one in flight.others if one.get("ended")]
    if failed and flight.roll is not None:
        return Problem(
            "node-failed",
            ERROR,
            f"The command of {listed([name_of(one) for one in failed])} failed before the ranks could start.",
            "Look at what that node printed.",
            nodes=tuple(name_of(one) for one in failed),
        )
    if flight.killed and flight.roll is not None:
        return Problem(
            "no-rank",
            ERROR,
            "All nodes came to the address, but the command has started no rank in time.",
            "Look at what the other nodes printed: one of them may have failed.",
        )
    ended = f"left with {flight.exit_code}" if not flight.killed else "did not end and was killed"
    last = plain(" / ".join(flight.output[-2:]), 300)
    return Problem(
        "no-rank",
        ERROR,
        f"The command {ended}, and no rank has written to {plain(flight.settings.directory)}{f' ({last})' if last else ''}.",
        "Look at the command's output in that folder; if the ranks run on other machines, share the folder (--dir).",
    )


# -- JSON ---------------------------------------------------------------------------------------------------------------


def as_object(report: Report) -> dict[str, Any]:
    """The documented JSON."""
    flight, known = report.flight, report.known
    world = known.plan.get("world") or flight.launch.world_size
    return {
        "version": VERSION,
        "command": shlex.join(flight.command),
        "world_size": world,
        "whole": report.whole,
        "backend": {"wanted": known.plan.get("wanted") or flight.settings.backend, "used": known.plan.get("backend")},
        "meeting": _meeting_object(flight),
        "ranks": {str(rank): _rank_object(state, known.came.get(rank)) for rank, state in known.states.items()},
        "communication": report.measured or None,
        "files": {known.node(rank): state["files"] for rank, state in known.leaders.items()},
        "data": {known.node(rank): state["data"] for rank, state in known.states.items() if state.get("data")},
        "shared": {str(rank): state["shared"] for rank, state in known.states.items() if state.get("shared")},
        "job": None if flight.reading is None else flight.reading.to_json(),
        "command_code": flight.exit_code,
        "problems": [problem.to_json() for problem in report.problems],
        "seconds": round(flight.seconds, 3),
    }


def _meeting_object(flight: Preflight) -> dict[str, Any] | None:
    if flight.meeting is None or flight.roll is None:
        return None
    roll = flight.roll
    return {
        "address": flight.meeting.address,
        "port": flight.meeting.port,
        "is_host": roll.is_host,
        "complete": roll.complete,
        "seconds": round(roll.waited, 3),
        "failure": roll.failure or None,
        "clock_offset": roll.offset,
        "nodes": [{key: node.get(key) for key in ("rank", "host", "least", "most", "processes", "after")} for node in roll.nodes],
    }


def _rank_object(state: Mapping[str, Any], came: float | None) -> dict[str, Any]:
    facts = state.get("facts", {})
    return {
        **{key: facts.get(key) for key in ("host", "local_rank", "device", "memory", "versions", "variables")},
        "node": state["node"],
        "arguments": state["arguments"],
        "came_after": came,
        "group_seconds": state.get("group_seconds"),
        "phase": None if state["ended"] and not state["error"] else state["phase"],
        "error": state["error"],
    }


# -- text ---------------------------------------------------------------------------------------------------------------


def lines(report: Report) -> Iterator[str]:
    """The report for people."""
    flight, known = report.flight, report.known
    yield f"preflight of {shlex.join(flight.command)}"
    yield ""
    yield from _nodes(flight)
    yield from _ranks(known)
    yield from _communication(report)
    yield from _sameness(known)
    yield from _job(flight)
    yield from _problems(report)


def _nodes(flight: Preflight) -> Iterator[str]:
    if flight.meeting is None or flight.roll is None:
        return
    yield f"Nodes at {flight.meeting.place}"
    for node in flight.roll.nodes:
        processes = f"{node.get('processes')} processes" if node.get("processes") != 1 else "1 process"
        yield f"  {name_of(node)}: {plain(processes, 40)}, came after {node.get('after', 0.0):.1f} s"
    yield ""


def _ranks(known: Known) -> Iterator[str]:
    facts = known.facts
    if not facts:
        return
    yield "Ranks"
    rows = [("rank", "node", "device", "free memory", "python", "torch", "nccl", "driver")]
    for rank, one in list(facts.items())[:_RANKS_SHOWN]:
        versions = one["versions"]
        python, torch, nccl, driver = (plain(versions.get(name) or "-") for name in ("python", "torch", "nccl", "driver"))
        rows.append((str(rank), known.node(rank), *_device_cells(one), python, torch, nccl, driver))
    keep = [column for column in range(8) if column < 6 or any(row[column] != "-" for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in keep}
    for row in rows:
        yield ("  " + "  ".join(row[column].ljust(widths[column]) for column in keep)).rstrip()
    if len(facts) > _RANKS_SHOWN:
        yield f"  and {len(facts) - _RANKS_SHOWN} more ranks (--format json)"
    yield ""


def _device_cells(facts: Mapping[str, Any]) -> tuple[str, str]:
    device, memory = facts["device"], facts["memory"]
    if device["index"] is None or device["error"]:
        free = f"{memory['free'] / 2**30:.1f} GiB" if memory.get("free") else "-"
        return ("none" if not device["count"] else f"none of {device['count']} GPUs"), free
    return f"{device['index']} of {device['count']}: {plain(device['name'], 40)}", f"{device['free'] / 2**30:.1f} GiB"


def _communication(report: Report) -> Iterator[str]:
    known, found = report.known, report.measured
    if not found:
        return
    seconds = max(state.get("group_seconds", 0.0) for state in known.states.values())
    world = known.plan["world"]
    first = _time(found["first"])
    yield f"Group of {world} over {known.plan['backend']}: made in {seconds:.2f} s, its first all-reduce took {first}"
    if world == 1:
        yield ""
        return
    yield f"  {'all-reduce of':<24}{'time':>10}{'algbw':>14}{'busbw':>14}"
    for row in found["all_reduce"]:
        size = f"{row['elements']:,} float32"
        if "skipped" in row:
            yield f"  {size:<24}skipped: it would take {row['skipped']}"
            continue
        wrong = f"  WRONG SUM on {rank_list(row['wrong'])}" if row["wrong"] else "  sum right"
        yield f"  {size:<24}{_time(row['seconds']):>10}{_speed(row['algbw']):>14}{_speed(row['busbw']):>14}{wrong}"
    if "ring" in found:
        state = "a message arrived changed" if found["ring"]["wrong"] else "every message right"
        yield f"  ring of point-to-point messages: {state}, {_time(found['ring']['seconds'])}"
    pairs = sorted(found["pairs"], key=lambda pair: float(pair["busbw"]))
    for pair in pairs[:_PAIRS_SHOWN]:
        first, second = pair["ranks"]
        ends = f"rank {first} ({known.node(first)}) - rank {second} ({known.node(second)})"
        yield f"  {ends}: {_time(pair['latency'])}, {_speed(pair['busbw'])}"
    if len(pairs) > _PAIRS_SHOWN:
        yield f"  the slowest {_PAIRS_SHOWN} of {len(pairs)} pairs; the fastest has {_speed(pairs[-1]['busbw'])}"
    slowest = max(found["compute"].values()) / min(found["compute"].values())
    yield f"  one product of matrices: the slowest rank needs {slowest:.1f} times as long as the fastest"
    offsets = [offset for rank, offset in found["clock"].items() if known.states[rank].get("leads")]
    yield f"  clocks of the nodes: {max(offsets) - min(offsets):.3f} s apart at most"
    yield ""


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _speed(rate: float) -> str:
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e8 else f"{rate / 1e6:.2f} MB/s" if rate >= 1e5 else f"{rate / 1e3:.2f} kB/s"


def _sameness(known: Known) -> Iterator[str]:
    leaders = known.leaders
    if not leaders:
        return
    nodes = "1 node" if len(leaders) == 1 else f"{len(leaders)} nodes"
    names = {name for state in leaders.values() for name in state["files"]}
    unlike = [name for name in names if len({state["files"].get(name) for state in leaders.values()}) > 1]
    if names:
        same = f"{len(unlike)} unlike" if unlike else "all alike"
        yield f"Source and configuration on {nodes}: {len(names)} file{'s' if len(names) > 1 else ''}, {same}"
    data = [state["data"] for state in leaders.values() if state.get("data")]
    for path in dict.fromkeys(path for one in data for path in one):
        alike = len({str(one.get(path)) for one in data}) == 1
        size = next((one[path]["size"] for one in data if "size" in one.get(path, {})), None)
        state = "not there" if size is None else f"{size:,} bytes, {'alike' if alike else 'not alike'}"
        yield f"Data {plain(path)} on {nodes}: {state}"
    looks = [look for state in known.states.values() for look in state.get("shared", ())]
    for path in dict.fromkeys(look["path"] for look in looks):
        seen = all(look["seen"] == look["expected"] and not look["error"] for look in looks if look["path"] == path)
        yield f"Folder {plain(path)}: {'every rank sees what every node writes' if seen else 'not shared as it should be'}"
    yield ""


def _job(flight: Preflight) -> Iterator[str]:
    update = flight.reading.update if flight.reading is not None else None
    if flight.reading is None or update is None:
        return
    if update.get("tokens_per_update") is not None:
        factors = {"W": update["world_size"], "a": update["a"], "B": update["B"], "T": update["T"]}
        known = {name: value for name, value in factors.items() if value is not None}
        product = f"{' x '.join(known)} = {' x '.join(f'{value:,}' for value in known.values())}"
        yield f"An update: K = {product} = {update['tokens_per_update']:,} {update['unit']}"
        yield f"  {update['meaning']}"
        yield ""


def _problems(report: Report) -> Iterator[str]:
    flight = report.flight
    for problem in report.problems:
        yield f"{problem.severity}: {problem.what} [{problem.kind}]"
        yield f"  Fix: {problem.fix}"
    if report.problems:
        yield ""
    if flight.started and not report.whole and report.known.states:
        yield "These are the ranks of this node. The node of rank 0 prints the report of all."
    if flight.roll is not None and not flight.roll.complete:
        yield "The job was not started: torchrun would wait for its nodes without a word."
    counted = [problem for problem in report.problems if problem.severity != INFO]
    verdict = "Nothing stands in the way of the job" if not counted else f"{len(counted)} problem{'s' if len(counted) > 1 else ''}"
    yield f"{verdict}; {flight.seconds:.1f} s."
