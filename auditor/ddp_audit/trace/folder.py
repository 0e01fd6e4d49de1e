"""The folder of a traced run as its launchers see it: made, shared by the nodes of one job, and closed.

Each node of a job has a launcher of its own, and all of them may have been given one folder on a shared file system. `run.json`
lists them under `nodes`. The first one empties the folder; one that finds itself to be another node of the same job joins it and
removes nothing. A folder into which another run still writes is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ddp_audit
from ddp_audit.launch import Launch, read_command
from ddp_audit.launch import LaunchError as NotRead
from ddp_audit.trace.plain import plain_file, read_plain
from ddp_audit.trace.processes import process_lives, ticks_of
from ddp_audit.trace.worker import layout

_START_WITHIN = 900.0  # seconds between the first and the last node of a job; torch's rendezvous gives up sooner
_HEARTBEAT_WITHIN = 10.0  # seconds without heartbeat after which a rank counts as gone


class FolderError(Exception):
    """A folder that cannot hold the trace. Its text is one line."""


class TraceFolder:
    """The folder and this launcher's place in it.

    `run` is the id of the run, equal on all nodes of a job. `errors` is the file for what this node's command writes to its
    standard error.
    """

    def __init__(self, path: Path, command: Sequence[str]) -> None:
        """Makes the folder, removes an earlier trace from it unless that is the same job's, and writes run.json. Raises
        FolderError."""
        self.path = path
        job = _job(command)
        self.run = job or uuid.uuid4().hex
        self.errors = path / layout.ERRORS_FILE.format("")
        self._node = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "ticks": ticks_of(os.getpid()),
            "rank": _node_rank(command),
            "command": shlex.join(command),
        }
        try:
            path.mkdir(parents=True, exist_ok=True)
            with self._locked():
                meta = self._read()
                if job is not None and self._is_of_this_job(meta):
                    self.errors = path / layout.ERRORS_FILE.format(f"-{len(meta['nodes'])}")
                    meta["nodes"].append(self._node)
                else:
                    self._refuse_if_in_use(meta)
                    self._empty()
                    meta = self._described(command)
                self._write(meta)
        except OSError as error:
            raise FolderError(f"{path}: cannot hold the trace: {error.strerror or error}") from error

    @property
    def is_shared(self) -> bool:
        """Whether launchers of other nodes have joined."""
        with suppress(OSError):
            return len(self._read().get("nodes", ())) > 1
        return False

    def close(self, exit_code: int, killed: Sequence[int] | None) -> None:
        """Adds to run.json how the command of this node ended, and to the run how the worst of those did, once all have. `killed`
        are the ranks that were alive when the command was ended because it stalled. Where that cannot be written, one line says
        so."""
        try:
            with self._locked():
                meta = self._read()
                mine = next(node for node in meta["nodes"] if self._is_me(node))
                mine.update(end=time.time(), exit_code=exit_code, killed=killed is not None, killed_ranks=list(killed or ()))
                if all("end" in node for node in meta["nodes"]):
                    codes = [node["exit_code"] for node in meta["nodes"]]
                    meta.update(
                        end=max(node["end"] for node in meta["nodes"]),
                        exit_code=next((code for code in codes if code), 0),
                        killed=any(node["killed"] for node in meta["nodes"]),
                        killed_ranks=sorted({rank for node in meta["nodes"] for rank in node.get("killed_ranks", ())}),
                    )
                self._write(meta)
        except (OSError, ValueError, KeyError, StopIteration) as error:
            sys.stderr.write(f"ddp-audit: {self.path / layout.RUN_FILE} does not say how the command ended: {error!r}\n")

    # -- who else is there ----------------------------------------------------------------------------------------------

    def _is_of_this_job(self, meta: dict[str, Any]) -> bool:
        """Whether the folder was begun by another node of this job. It was not if this node is in it already: then that was an
        earlier attempt."""
        if meta.get("run") != self.run or "end" in meta or time.time() - meta.get("start", 0) > _START_WITHIN:
            return False
        for node in meta.get("nodes", ()):
            if node["host"] != self._node["host"]:
                if node["rank"] is not None and node["rank"] == self._node["rank"]:
                    return False
            elif node["rank"] == self._node["rank"] is not None or not process_lives(node["pid"], node["ticks"]):
                return False
        return bool(meta.get("nodes"))

    def _refuse_if_in_use(self, meta: dict[str, Any]) -> None:
        here = self._node["host"]
        advice = "end it, or give another --dir"
        for node in meta.get("nodes", ()):
            if node["host"] == here and "end" not in node and process_lives(node["pid"], node["ticks"]):
                raise FolderError(f"{self.path}: the trace of another run goes there (pid {node['pid']}); {advice}")
        for file in sorted(self.path.glob("rank-*.ddptrace")):
            try:
                with plain_file(file) as stream:
                    header = stream.read(layout.HEADER.size)
            except OSError:  # no file of a rank: it is removed
                continue
            if len(header) < layout.HEADER.size or header[:8] != layout.MAGIC:
                continue
            pid, heartbeat = layout.HEADER.unpack(header)[5:7]
            if time.time() - heartbeat < _HEARTBEAT_WITHIN and process_lives(pid):
                raise FolderError(f"{self.path}: a rank of another run still writes there (pid {pid}); {advice}")

    def _is_me(self, node: dict[str, Any]) -> bool:
        return all(node[key] == self._node[key] for key in ("host", "pid", "ticks"))

    # -- the files ------------------------------------------------------------------------------------------------------

    def _empty(self) -> None:
        patterns = ("rank-*.ddptrace*", "rank-*.stacks", layout.ERRORS_FILE.format("*"), layout.REQUEST_FILE, layout.SAVED_FILE)
        for old in [path for pattern in patterns for path in self.path.glob(pattern)]:
            old.unlink(missing_ok=True)

    def _described(self, command: Sequence[str]) -> dict[str, Any]:
        return {
            "version": 1,
            "run": self.run,
            "tool": {"name": "ddp-audit", "version": ddp_audit.__version__},
            "command": list(command),
            "launch": shlex.join(command),
            "cwd": str(Path.cwd()),
            "start": time.time(),
            "host": self._node["host"],
            "world_size": None,
            "nodes": [self._node],
        }

    def _read(self) -> dict[str, Any]:
        """What run.json says; nothing where it is missing or damaged, which the next run repairs."""
        try:
            found = json.loads(read_plain(self.path / layout.RUN_FILE))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, meta: dict[str, Any]) -> None:
        temporary = self.path / f"{layout.RUN_FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(meta, indent=1), encoding="utf-8")
        temporary.replace(self.path / layout.RUN_FILE)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One launcher at a time. A file system without locks leaves the moment in which two nodes could miss each other."""
        # Not the open() of Python: it would wait for the other end of a pipe.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with os.fdopen(os.open(self.path / layout.LOCK_FILE, flags, 0o644), "w") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _job(command: Sequence[str]) -> str | None:
    """An id that the launchers of all nodes of a job derive alike, from where its nodes meet; None for a job of one node."""
    launch = _read(command)
    if launch is None or launch.standalone or launch.nnodes in (1, "1:1"):
        return None
    meeting = (launch.master_addr, launch.master_port, launch.rdzv_id, launch.script, os.environ.get("SLURM_JOB_ID"))
    return uuid.uuid5(uuid.NAMESPACE_URL, repr(meeting)).hex


def _node_rank(command: Sequence[str]) -> int | None:
    launch = _read(command)
    given = None if launch is None else launch.node_rank
    given = os.environ.get("SLURM_NODEID") if given is None else given
    return int(str(given)) if str(given).isdigit() else None


def _read(command: Sequence[str]) -> Launch | None:
    try:
        return read_command(list(command))
    except NotRead:
        return None
