"""Runs small scripts on real ranks, each a process of its own on gloo, and says how they end and what every rank sent.

A server that has torch imported forks the ranks, so that a script costs a fraction of a second. A rank that has come to its end
stays alive: what waits for it hangs, and does not fail for a closed connection. `held` compares a script with its prediction.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "machine"))

FIELDS = ("op", "group", "numel", "dtype", "root", "reduce_op", "origin")


@dataclass(frozen=True, slots=True)
class Real:
    """How a run ended: completes, hangs, aborts or raises; what each rank sent, and the error of a rank that raised."""

    kind: str
    events: list[list[dict[str, Any]]]
    errors: list[str]


class ForkedRanks:
    """A server for real runs of scripts. Use as a context manager. `timeout` is how long nothing may move, in seconds."""

    def __init__(self, timeout: float = 2.5) -> None:
        self.timeout = timeout
        self.server: subprocess.Popen[str] | None = None

    def __enter__(self) -> ForkedRanks:
        return self

    def __exit__(self, *_: object) -> None:
        if self.server is not None:
            assert self.server.stdin is not None
            self.server.stdin.close()
            self.server.wait(20)
            self.server = None

    def run(self, script: Path, world_size: int) -> Real:
        """Runs a script on so many ranks."""
        if self.server is None:
            env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
            self.server = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("REAL_RANKS_STDERR") else subprocess.DEVNULL,
                text=True,
                env=env,
            )
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps({"script": str(script), "size": world_size, "timeout": self.timeout}) + "\n")
        self.server.stdin.flush()
        line = self.server.stdout.readline()
        if not line:
            raise RuntimeError("the server of real ranks died")
        return Real(**json.loads(line))


def predict_script(script: Path, world_size: int) -> Any:
    """The predicted run of a script."""
    from ddp_audit.audit import Options
    from ddp_audit.explore.exact import Bounds, predict
    from ddp_audit.predicted import job_of

    job = job_of([script], Options(defaults_hold=True), bounds=Bounds(steps=None))
    assert job is not None
    return predict(replace(job, world_size=world_size))


def held(forked: ForkedRanks, script: Path, world_size: int) -> str | None:
    """Where the prediction of a script and its real run differ; None where they agree, event by event and in their end."""
    run = predict_script(script, world_size)
    if run.cut or run.bounds or run.certain:
        return f"not followed: {[*run.cut.values(), *run.bounds]}"
    real = forked.run(script, world_size)
    predicted = "raises" if run.raised else run.kind
    if predicted == "raises" and real.kind == "raises":
        return None
    if predicted != real.kind:
        return f"predicted {predicted} ({run.outcome.explanation} {run.raised}), the run {real.kind} {real.errors}"
    for rank, events in run.sequences.items():
        issued = events[: run.stops.get(rank, len(events)) + 1]
        ours = [as_recorded(event) for event in issued if event.kind == "collective"]
        theirs = real.events[rank]
        if real.kind == "aborts":
            continue
        for number, (mine, its) in enumerate(zip(ours, theirs, strict=False)):
            if mine["origin"] == "ddp-join" and its["origin"] == "ddp-buffers":
                mine["origin"] = its["origin"]  # all that the end of a block sends is the block's own
            if any(mine[name] is not None and mine[name] != its[name] for name in FIELDS):
                return f"rank {rank}, collective {number}: predicted {mine}, torch issued {its}"
        if len(ours) != len(theirs) and real.kind == "completes":
            return f"rank {rank}: predicted {len(ours)} collectives, torch issued {len(theirs)}"
    return None


def as_recorded(event: Any) -> dict[str, Any]:
    """An event as the recorder writes it: the other end of a message is its root."""
    found = {name: getattr(event, name) for name in FIELDS}
    if event.op in ("send", "recv"):
        found["root"] = event.detail.get("peer")
    return found


# The server: forks ranks, never touches a thread or a process group itself.


def serve() -> None:
    import torch._dynamo  # noqa: F401 - the constructor of DDP imports it
    from real_recorder import Recorder

    recorder = Recorder()
    recorder.install()
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            reply = run_forked(recorder, request, Path(folder))
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def run_forked(recorder: Any, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    size = request["size"]
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            rank_main(recorder, request["script"], rank, size, folder)
        pids.append(pid)
    died: dict[int, int] = {}
    seen, since = -1, time.monotonic()
    began = since
    while True:
        time.sleep(0.01)
        for rank, pid in enumerate(pids):
            if rank not in died:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    died[rank] = status
        ended = [(folder / f"{rank}.end").exists() for rank in range(size)]
        if all(done or rank in died for rank, done in enumerate(ended)) or died:
            break
        now = sum((folder / f"{rank}.events").stat().st_size for rank in range(size) if (folder / f"{rank}.events").exists())
        now += sum(ended)
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > request["timeout"] * (
            1 if all((folder / f"{r}.events").exists() for r in range(size)) else 10
        ):
            break
        if time.monotonic() - began > 120:
            break
    time.sleep(0.05 if died else 0)
    errors = [(folder / f"{r}.end").read_text() if (folder / f"{r}.end").exists() else "" for r in range(size)]
    for rank, pid in enumerate(pids):
        if rank not in died:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    kind = "aborts" if died else "raises" if any(errors) else "completes" if all(ended) else "hangs"
    events = []
    for rank in range(size):
        path = folder / f"{rank}.events"
        events.append([json.loads(text) for text in path.read_text().splitlines()] if path.exists() else [])
    return {"kind": kind, "events": events, "errors": errors}


def rank_main(recorder: Any, script: str, rank: int, size: int, folder: Path) -> None:
    """One rank, to its end; it stays until it is ended from outside."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    recorder.begin(rank)
    recorder.groups_before[rank] = 0
    recorder.stream = (folder / f"{rank}.events").open("w", buffering=1)
    init = dist.init_process_group

    def meet(*_: Any, **__: Any) -> None:
        init("gloo", store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size)

    dist.init_process_group = meet  # type: ignore[assignment]
    error = ""
    try:
        with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
            runpy.run_path(script, run_name="__main__")
    except SystemExit:
        pass
    except BaseException as problem:  # the very thing under test
        error = f"{type(problem).__name__}: {problem}"[:500]
    (folder / f"{rank}.part").write_text(error)
    (folder / f"{rank}.part").rename(folder / f"{rank}.end")
    while True:
        time.sleep(60)


if __name__ == "__main__":
    serve()
    os._exit(0)
