"""One node's side of a preflight: meets the other nodes, starts the job's command with the probe in it, collects what is known."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_audit.launch import Launch
from ddp_audit.launch.model import ACCELERATE, PYTHON, TORCH_LAUNCH, TORCH_RUN, TORCHRUN
from ddp_audit.preflight.command import probe_environment, spawning, with_probe
from ddp_audit.preflight.folder import JOB, OUTPUT, StateFolder
from ddp_audit.preflight.job import JobReading, read_job
from ddp_audit.preflight.rollcall import IN_USE, Meeting, Roll, call_roll
from ddp_audit.preflight.settings import Settings, encode
from ddp_audit.trace.launcher import resolve
from ddp_audit.trace.processes import kill_tree

_MEET = (TORCHRUN, TORCH_RUN, TORCH_LAUNCH, ACCELERATE)
_PORTS = {"static": 29500, "c10d": 29400}  # torch.distributed.run's defaults
_START = 30.0  # seconds for a rank to start, where --timeout is not more
_GRACE = 10.0  # seconds for ranks to end by themselves after their time is over
_BEAT = 1.5
_LEAVE = 3.0  # seconds for the command to end after its ranks have
_OUTPUT_LINES = 6


@dataclass(slots=True)
class Preflight:
    """All that one node knows at the end. `job` is what rank 0 gathered, on its node alone; `ranks` what this node's wrote.

    `exit_code` is the command's, None where it was not started, `killed` where it had to be ended. `output` are the last lines
    that it wrote.
    """

    command: Sequence[str]
    launch: Launch
    settings: Settings
    me: dict[str, Any] = field(default_factory=dict)  # what this launcher says of itself to the others
    reading: JobReading | None = None
    meeting: Meeting | None = None
    roll: Roll | None = None
    others: list[dict[str, Any]] = field(default_factory=list)  # launchers that write into the same folder
    job: dict[str, Any] | None = None
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    exit_code: int | None = None
    killed: bool = False
    output: list[str] = field(default_factory=list)
    seconds: float = 0.0
    started: bool = False


def run_preflight(
    command: Sequence[str], launch: Launch, script: Path | None, settings: Settings, wait: float, tell: Callable[[str], None]
) -> Preflight:
    """Checks a job from this node. `wait` is how many seconds the other nodes have to come.

    Raises the trace launcher's LaunchError for a command that is not there, the launch package's where the script does not stand in
    it, and OSError for a folder that cannot be written.
    """
    began = time.monotonic()
    words = resolve(command)
    settings = replace(settings, run=uuid.uuid4().hex[:12])
    with_probe(words, launch, encode(settings))  # before anybody waits for this node
    folder = StateFolder(settings.directory, settings.run)
    folder.make()
    meeting = meeting_of(launch)
    flight = Preflight(command, launch, settings, meeting=meeting)
    if meeting is not None:
        flight.me = _about(launch, meeting, settings)
        folder.write("node", flight.me)
        if meeting.most > 1 or meeting.rank:
            tell(f"waiting for the other nodes at {meeting.place}, {wait:.0f} s at most")
            flight.roll = call_roll(meeting, flight.me, wait, folder.beat)
            if flight.roll.failure == IN_USE:
                time.sleep(_BEAT)  # what has the port may be a node of this job, and shows that it lives
    if script is not None:
        tell(f"reading {settings.script}")
        flight.reading = read_job(_as_met(launch, flight.roll), script)
        settings = flight.settings = replace(
            settings, backend=settings.backend or flight.reading.backend, roots=flight.reading.roots
        )
    if flight.roll is None or flight.roll.complete:
        tell(f"checking on {launch.describe_world()}, {settings.timeout:.0f} s at most")
        _run_command(flight, words, folder)
    folder.write("node", flight.me | {"ended": flight.exit_code})
    if flight.roll is None or not flight.roll.complete or not flight.ranks:
        flight.others = [one for one in folder.other_nodes() if one.get("script") == launch.script]
    flight.seconds = time.monotonic() - began
    return flight


def _as_met(launch: Launch, roll: Roll | None) -> Launch:
    """The launch as the roll shows it: as many nodes and processes as came, at an address that is known to be right."""
    if roll is None or not roll.complete:
        return launch
    launch = replace(launch, master_addr=None, nnodes=len(roll.nodes))
    processes = [node.get("processes") for node in roll.nodes]
    counts = [count for count in processes if isinstance(count, int)]
    if len(counts) < len(processes):
        return launch
    each = counts[0] if len(set(counts)) == 1 else launch.nproc_per_node
    return replace(launch, nproc_per_node=each, world_size=sum(counts))


def meeting_of(launch: Launch) -> Meeting | None:
    """Where the launchers of a job's nodes meet; None for launchers that start all nodes themselves."""
    if launch.kind not in _MEET or launch.standalone or launch.through:
        return None
    backend = launch.rdzv_backend or "static"
    least, most = _bounds(launch.nnodes)
    if backend not in _PORTS or most is None or least is None:
        return None
    rank = (launch.node_rank if isinstance(launch.node_rank, int) else 0) if backend == "static" else None
    address = launch.master_addr or ("127.0.0.1" if backend == "static" else None)
    port = _PORTS[backend] if launch.master_port is None else launch.master_port
    if address is None or not isinstance(port, int) or not 0 < port < 65536:
        return None
    return Meeting(address.strip("[]"), port, least, most, rank)


def _bounds(nnodes: int | str) -> tuple[int | None, int | None]:
    if isinstance(nnodes, int):
        return nnodes, nnodes
    least, _, most = nnodes.partition(":")
    return (int(least), int(most)) if least.isdecimal() and most.isdecimal() else (None, None)


def _about(launch: Launch, meeting: Meeting, settings: Settings) -> dict[str, Any]:
    """What a launcher says of itself to the others."""
    return {
        "run": settings.run,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "rank": meeting.rank,
        "least": meeting.least,
        "most": meeting.most,
        "processes": launch.nproc_per_node,
        "address": meeting.address,
        "port": meeting.port,
        "script": launch.script,
        "rdzv_id": launch.rdzv_id,
    }


def _run_command(flight: Preflight, words: Sequence[str], folder: StateFolder) -> None:
    """Runs the command with the probe until rank 0 has the report, the command has ended, or the time is over."""
    settings = encode(flight.settings)
    launch = flight.reading.launch if flight.reading is not None else flight.launch
    spawns = launch.kind == PYTHON and flight.launch.world_size == 1 and (launch.world_size or 1) > 1
    probe = spawning(launch, settings) if spawns else with_probe(words, flight.launch, settings)
    flight.started = True
    with folder.file(OUTPUT, "log").open("wb") as output:
        process = subprocess.Popen(
            probe, env=probe_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp
        )
        try:
            _await(process, folder, flight)
        except BaseException:
            kill_tree(process.pid)
            raise
    flight.exit_code = process.returncode
    flight.job = folder.read(JOB)
    flight.ranks = folder.ranks()
    flight.output = _last_lines(folder.file(OUTPUT, "log"))


def _await(process: subprocess.Popen[bytes], folder: StateFolder, flight: Preflight) -> None:
    finished: float | None = None
    has_ranks = False
    end = time.monotonic() + max(flight.settings.timeout, _START)
    met = {node["run"] for node in flight.roll.nodes} if flight.roll is not None else set()
    while process.poll() is None:
        now = time.monotonic()
        folder.beat()
        ranks = folder.ranks()
        if ranks and not has_ranks:
            has_ranks, end = True, now + flight.settings.timeout + _GRACE
        if finished is None and _has_finished(folder, ranks, flight.launch.nproc_per_node):
            finished = now
        if finished is None and not ranks and any(one.get("run") in met and one.get("ended") for one in folder.other_nodes()):
            finished = now  # the launcher of another node has failed, and this one would wait for it
        if now > end or (finished is not None and now > finished + _LEAVE):
            # Agents of several nodes wait for each other at their end, up to five minutes.
            flight.killed = finished is None
            kill_tree(process.pid)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)


def _has_finished(folder: StateFolder, ranks: dict[int, dict[str, Any]], processes: int | str) -> bool:
    """Whether the ranks of this node have ended, and rank 0 has written its report where it is one of them."""
    if not ranks or not all(state.get("ended") or state.get("stuck") for state in ranks.values()):
        return False
    if isinstance(processes, int) and len(ranks) < processes:
        return False
    return 0 not in ranks or bool((folder.read(JOB) or {}).get("final"))


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 16384))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-_OUTPUT_LINES:]
