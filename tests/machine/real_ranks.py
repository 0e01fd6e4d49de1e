"""Runs short programs on real DistributedDataParallel: gloo, one rank a thread, in a process that may hang or die.

A program is a list of operations of one rank (see `Executor`). `RealRanks.run` gives it to a session process, which is forked
from a server that has torch imported, so that a hang or an abort of gloo costs a tenth of a second and stops nothing else.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_operations import Executor
from real_recorder import Recorder

WORLD_SIZE = 2


@dataclass
class Result:
    """What the ranks did.

    `kind` is completes, hangs or aborts; `positions` the operation in which each rank stopped, the constructor being number 0
    (the program's length and one where it finished); `steps` a rank and operation: error, events, gradients. An aborted run has
    no steps.
    """

    kind: str
    positions: list[int]
    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # the position of a rank that has finished
    pending: list[list[dict[str, Any]]] = field(default_factory=list)  # events of the operation in which a rank stopped


class RealRanks:
    """A server for real runs of `world_size` ranks. Use as a context manager.

    `timeout` is how long a rank may stand still, in seconds.
    """

    def __init__(self, timeout: float = 2.5, world_size: int = WORLD_SIZE) -> None:
        self.timeout = timeout
        self.world_size = world_size
        self.server: subprocess.Popen[str] | None = None
        self.others: dict[int, RealRanks] = {}

    def of(self, world_size: int) -> RealRanks:
        """The same for another number of ranks."""
        if world_size == self.world_size:
            return self
        return self.others.setdefault(world_size, RealRanks(self.timeout, world_size))

    def __enter__(self) -> RealRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for other in self.others.values():
            other.close()
        if self.server is not None:
            assert self.server.stdin is not None
            self.server.stdin.close()
            self.server.wait(20)
            self.server = None

    def run(
        self,
        programs: list[list[list[Any]]],
        model: dict[str, Any],
        options: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Wraps `model` with `options` on every rank and runs the rank's program."""
        if self.server is None:
            env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
            self.server = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(self.world_size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("REAL_RANKS_STDERR") else subprocess.DEVNULL,
                text=True,
                env=env,
            )
        assert self.server.stdin is not None and self.server.stdout is not None
        request = {"programs": programs, "model": model, "options": options or {}, "timeout": timeout or self.timeout}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        line = self.server.stdout.readline()
        if not line:
            raise RuntimeError("the server of real ranks died")
        return Result(**json.loads(line), lengths=[len(program) + 1 for program in programs])


# The server: forks sessions, never touches a thread or a process group itself.


def serve(world_size: int) -> None:
    import torch._dynamo  # noqa: F401 - the constructor of DDP imports it; sessions forked from here start with it
    from torch.testing._internal.distributed import multi_threaded_pg  # noqa: F401

    recorder = Recorder()
    recorder.install()
    session: Session | None = None
    for line in sys.stdin:
        if session is None:
            session = Session(recorder, world_size)
        reply, alive = session.ask(line)
        if not alive:
            session.end()
            session = None
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()
    if session is not None:
        session.end()


class Session:
    """One forked process with its ranks as threads; it serves requests until a program hangs or aborts."""

    def __init__(self, recorder: Recorder, world_size: int) -> None:
        self.world_size = world_size
        self.progress = mmap.mmap(-1, 4096)
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.down)
            os.close(self.up)
            code = 1
            try:
                session_main(down_read, up_write, self.progress, recorder, world_size)
                code = 0
            finally:
                os._exit(code)
        os.close(down_read)
        os.close(up_write)

    def ask(self, line: str) -> tuple[str, bool]:
        request = json.loads(line)
        deadline = time.monotonic() + 60 + request["timeout"]
        os.write(self.down, line.encode())
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.up], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.up, 1 << 20) if ready else b""
            if not chunk:
                kind = "aborts" if ready else "hangs"
                positions = list(struct.unpack(f"{self.world_size}q", self.progress[: 8 * self.world_size]))
                return json.dumps({"kind": kind, "positions": positions}), False
            answer += chunk
        text = answer.decode().strip()
        # What a program leaves would reach the next: groups that the process has counted, their keys in the store, messages
        # that nobody has received yet.
        leaves = any(op[0] in ("async", "new_group") for program in request["programs"] for op in program)
        return text, json.loads(text)["kind"] == "completes" and not leaves

    def end(self) -> None:
        os.close(self.down)
        os.close(self.up)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


# The session: real ranks.


def session_main(down: int, up: int, progress: mmap.mmap, recorder: Recorder, world_size: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg

    torch.set_num_threads(1)
    _install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    store = dist.HashStore()
    inbox: list[dict[str, Any] | None] = [None]
    start = [threading.Event() for _ in range(world_size)]
    done = [threading.Event() for _ in range(world_size)]
    ranks: list[Rank] = [Rank(r, recorder, progress) for r in range(world_size)]

    def worker(rank: int) -> None:
        import datetime

        dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store, timeout=datetime.timedelta(seconds=600))
        while True:
            start[rank].wait()
            start[rank].clear()
            request = inbox[0]
            assert request is not None
            ranks[rank].run(request)
            done[rank].set()

    for r in range(world_size):
        threading.Thread(target=worker, args=(r,), daemon=True).start()
    with os.fdopen(down) as requests, os.fdopen(up, "w") as replies:
        for line in requests:
            request = json.loads(line)
            inbox[0] = request
            for rank in ranks:
                rank.reset()
            for event in start:
                event.set()
            kind = wait_for(done, ranks, request["timeout"])
            reply = {
                "kind": kind,
                "positions": [rank.position for rank in ranks],
                "steps": [rank.steps for rank in ranks],
                "pending": [recorder.events_of(rank.rank) for rank in ranks],
            }
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
            if kind != "completes":
                time.sleep(5)  # the server ends this process
                return
            for event in done:
                event.clear()


def wait_for(done: list[threading.Event], ranks: list[Rank], timeout: float) -> str:
    """completes when all are done, hangs when nothing has moved for `timeout` seconds (ten times that in the constructor)."""
    seen, since = None, time.monotonic()
    while not all(event.wait(0.002) for event in done):
        now = (tuple(rank.position for rank in ranks), tuple(len(rank.steps) for rank in ranks))
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > timeout * (10 if sum(now[0]) == 0 else 1):
            return "hangs"
    return "completes"


class Rank:
    """Executes programs on one rank."""

    def __init__(self, rank: int, recorder: Recorder, progress: mmap.mmap) -> None:
        self.rank = rank
        self.recorder = recorder
        self.progress = progress
        self.reset()

    def reset(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.move(0)

    def move(self, position: int) -> None:
        self.position = position
        struct.pack_into("q", self.progress, 8 * self.rank, position)

    def run(self, request: dict[str, Any]) -> None:
        self.recorder.begin(self.rank)
        executor = Executor(self.rank, request["model"], request["options"])
        program = request["programs"][self.rank]
        for position, operation in enumerate([["construct"], *program]):
            self.move(position)
            error = ""
            try:
                executor.execute(operation)
            except Exception as problem:  # the very thing under test
                error = f"{type(problem).__name__}: {problem}"
            self.steps.append({"error": error, "events": self.recorder.take(self.rank), "gradients": executor.gradients()})
            if executor.ddp is None:
                break
        self.move(len(program) + 1)
        executor.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
    os._exit(0)  # without torch's own teardown, which takes seconds
