"""Runs a launch command with the tracer in every worker, and watches the trace from outside while it runs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.live_faults import LiveFaults
from ddp_audit.compare.run import EXITED, RUNNING, WAITING, RecordedRun
from ddp_audit.events import START
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.errors import KeptErrors
from ddp_audit.trace.folder import FolderError, TraceFolder
from ddp_audit.trace.processes import kill_tree, process_lives
from ddp_audit.trace.stalls import Stalls
from ddp_audit.trace.store import FollowRun, TraceError
from ddp_audit.trace.worker import layout

DEFAULT_DIRECTORY = "ddp-trace"
_SETTLE_TIME = 3.0  # seconds after the last event in which it may turn out that a rank waits for good
_ENDED_LOOKS = 4
_ANSWER_TIME = 2.5  # seconds for the ranks to write where they stand
_AFTER_DIVERGENCE = 5.0  # a stall is believed sooner once the ranks were seen to part
_OTHERS_TIME = 10.0  # seconds for the ranks of other nodes to end after those of this one
_INTERRUPT_TIME = 5.0  # seconds that a Ctrl-C has to end ranks that wait in a collective
_FAULTS_EVERY = 5.0  # seconds from one look for silent faults to the next
_FAULTS_PAUSE = 20.0  # and at least so many times what the last one took
_MOST_READ = 64 << 20  # bytes of trace files that are read for it
_RUN_MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}


class LaunchError(Exception):
    """A command that cannot be started. Its text is one line; the exit code of the tool is 2."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How a traced command ended. `exit_code` is the command's own, 128 + n where signal n ended it, and 130 after Ctrl-C.

    `killed` says that its processes were ended because they stalled, `interrupted` that SIGINT or SIGTERM came.
    """

    exit_code: int
    killed: bool
    directory: Path
    interrupted: bool = False


def run_traced(
    command: Sequence[str],
    *,
    directory: str | os.PathLike[str] = DEFAULT_DIRECTORY,
    stall_after: float = 30.0,
    on_stall: str = "report",
    on_divergence: Callable[[RecordedRun], bool] | None = None,
    on_stall_report: Callable[[RecordedRun], None] | None = None,
    on_stall_end: Callable[[], None] | None = None,
    on_tracer_end: Callable[[list[int]], None] | None = None,
    on_read: Callable[[RecordedRun], None] | None = None,
    on_silent: Callable[[list[SilentFault]], None] | None = None,
    poll: float = 0.25,
    native: str | None = None,
) -> LaunchResult:
    """Runs COMMAND traced and returns when it has ended.

    `directory` is made, and an earlier trace in it removed, unless launchers of other nodes of the same job share it. The
    command's standard error is shown and kept there (`stderr.log`). While the command runs, the trace is read every `poll`
    seconds, and `on_divergence` is called with the run so far, until it returns True (it found a divergence and reported it).

    The memory of all this does not grow with the run: after `on_read`, which is called whenever a little more of each rank has been
    read, all but the newest events are forgotten (`RecentEvents`).

    A rank that waits longer than `stall_after` seconds in one collective (0: never) is a stall: all ranks are asked where they
    stand (a `stack` event each) and `on_stall_report` is called, once a stall; `on_stall_end` where the wait ends after all, with
    every rank alive. With `on_stall="kill"` all processes of the command are then ended, provided that no rank has recorded
    anything for that long either; after a divergence 5 seconds are enough.

    `on_tracer_end` is called with ranks whose tracer has ended before them. They are watched on: one that stands at one place of
    torch.distributed or of a backward pass for `stall_after` seconds is a stall too.

    `on_silent` is called with silent faults that have become sure while the command runs, each once. They are read from the files
    of all ranks together, in a twentieth of the time at most, and not where these are larger than 64 MB.

    `native` says which kernel records: "auto" the native one where it is built, "on" the native one, which must have been built
    (`ddp_audit.trace.build.ensure_built`), "off" the Python one; None leaves it to DDP_AUDIT_NATIVE.

    Ctrl-C and SIGTERM are passed on to the command, and the trace is kept; a second Ctrl-C ends it at once. Raises LaunchError
    for a command that is not there. A trace that cannot be read (TraceError) and an error in a callback end the watching; the
    command runs on, and the error is raised after its end.
    """
    if on_stall not in ("report", "kill"):
        raise ValueError(f"on_stall is 'report' or 'kill', not {on_stall!r}")
    resolved = resolve(command)
    folder = Path(directory).resolve()
    try:
        place = TraceFolder(folder, command)
    except FolderError as error:
        raise LaunchError(str(error)) from error
    environment = traced_environment(folder, place.run)
    if native is not None:
        environment[layout.ENV_NATIVE] = native
    if is_plain_python(resolved):
        environment[layout.ENV_SOLO] = str(os.getpid())
    with KeptErrors(place.errors) as errors:
        try:
            # A group of its own, so that a Ctrl-C at the terminal reaches the command once: from here.
            process = subprocess.Popen(resolved, env=environment, preexec_fn=os.setpgrp, stderr=errors.descriptor)
        except OSError as error:
            raise LaunchError(f"{resolved[0]}: cannot be run: {error.strerror or error}") from error
        watched = FollowRun(folder, consume=on_read or (lambda run: None))
        session = _Session(process, watched, stall_after, on_stall == "kill", on_divergence, on_stall_report, on_stall_end)
        session.on_tracer_end = on_tracer_end
        session.on_silent = on_silent
        with _passing_on(process) as signals:
            try:
                while process.poll() is None:
                    session.look()
                    if signals.should_end(session.waits()):
                        kill_tree(process.pid, session.workers())
                    _wait(process, poll)
            except BaseException:
                kill_tree(process.pid, session.workers())
                raise
    if place.is_shared:
        session.await_others()
    session.look(last=True)
    code = process.returncode
    exit_code = 130 if signal.SIGINT in signals.received else 128 - code if code < 0 else code
    place.close(exit_code, session.killed_ranks if session.killed else None)
    if session.error is not None:
        raise session.error
    return LaunchResult(exit_code, session.killed, folder, bool(signals.received))


class _Session:
    """What the watching side knows of the run."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        follow: FollowRun,
        stall_after: float,
        kills: bool,
        on_divergence: Callable[[RecordedRun], bool] | None,
        on_stall_report: Callable[[RecordedRun], None] | None,
        on_stall_end: Callable[[], None] | None,
    ) -> None:
        self.killed = False
        self.killed_ranks: list[int] = []  # those that were alive then
        self.on_tracer_end: Callable[[list[int]], None] | None = None
        self.on_silent: Callable[[list[SilentFault]], None] | None = None
        self._faults = LiveFaults()
        self._next_faults = time.monotonic() + _FAULTS_EVERY
        self._untraced: set[int] = set()
        self.error: Exception | None = None
        self._is_new = False
        self._next_check = 0.0
        self._process = process
        self._folder = follow.directory
        self._follow = follow
        self._stall_after = stall_after
        self._kills = kills
        self._on_divergence = on_divergence
        self._on_stall_report = on_stall_report
        self._on_stall_end = on_stall_end
        self._diverged = False
        self._restarts = 0
        self._progress = (0, 0)
        self._moved = time.monotonic()
        self._stalls = Stalls(follow.directory, stall_after, process.pid)
        self._reported: set[object] = set()
        self._stalled: object = None  # of these the last, while it goes on
        self._ended_looks = 0  # looks since it ended: an error that ended it comes a moment later

    def look(self, last: bool = False) -> None:
        """Reads on, and calls back about what it means. What goes wrong here is kept in `error`: the command runs on, unwatched."""
        if self.error is not None:
            return
        try:
            self._look(last)
        except Exception as error:
            self.error = error

    def _look(self, last: bool) -> None:
        run = self._follow.poll()
        now = time.monotonic()
        if self._follow.restarts != self._restarts:
            self._restarts, self._diverged = self._follow.restarts, False
            self._faults = LiveFaults()
        if self._follow.progress != self._progress:
            self._progress, self._moved, self._is_new = self._follow.progress, now, True
        self._look_for_ended_tracers(run)
        settles = not self._diverged and now - self._moved < _SETTLE_TIME
        if (self._is_new or settles) and (last or now >= self._next_check) and run.world_size:
            self._is_new = False
            if self._on_divergence is not None and not self._diverged:
                self._diverged = self._on_divergence(run)
                # Comparing a long run takes long: it may have a fifth of the time, and yet comes at least every 4 seconds.
                self._next_check = time.monotonic() + min(4.0, 4 * (time.monotonic() - now))
        if not last and now >= self._next_faults and run.world_size > 1:
            self._look_for_faults()
        if last:
            self._stalls.forget()
            self._look_for_end(run, _ENDED_LOOKS)
        elif self._stall_after and not self.killed:
            self._look_for_stall(run, now)

    def _look_for_faults(self) -> None:
        """Reads all files again and calls back about silent faults. A file that is just being made is read the next time."""
        began = time.monotonic()
        found: list[SilentFault] = []
        try:
            size = sum(file.stat().st_size for file in self._folder.glob("rank-*.ddptrace"))
            if self.on_silent is not None and not self._diverged and size <= _MOST_READ:
                found = self._faults.update(load_columns(self._folder)[0])
        except (TraceError, OSError):
            pass
        if found and self.on_silent is not None:
            self.on_silent(found)
        self._next_faults = time.monotonic() + max(_FAULTS_EVERY, _FAULTS_PAUSE * (time.monotonic() - began))

    def _look_for_ended_tracers(self, run: RecordedRun) -> None:
        ended = [rank for rank, one in run.ranks.items() if one.untraced and rank not in self._untraced]
        self._untraced.update(ended)
        if ended and self.on_tracer_end is not None:
            self.on_tracer_end(ended)

    def _look_for_stall(self, run: RecordedRun, now: float) -> None:
        stall = self._stalls.longest(run, now)
        self._look_for_end(run)
        limit = min(self._stall_after, _AFTER_DIVERGENCE) if self._diverged and self._kills else self._stall_after
        if stall is None or stall.seconds < limit:
            return
        if stall.key not in self._reported:
            self._reported.add(stall.key)
            self._stalled = stall.key
            self._ask(run)
            if self._on_stall_report is not None:
                self._on_stall_report(run)
        untraced = [time.time() - self._stalls.stood(rank, run)[0] for rank, one in run.ranks.items() if one.untraced]
        if self._kills and min([now - self._moved, *untraced]) >= limit:
            self.killed = True
            self.killed_ranks = [r for r, one in run.ranks.items() if one.state in (WAITING, RUNNING) or one.lingers]
            kill_tree(self._process.pid, self.workers())

    def _look_for_end(self, run: RecordedRun, looks: int = 1) -> None:
        """Tells that the wait which was reported last has ended well, some looks after it did."""
        if self._stalled is None or self._stalls.holds(self._stalled):
            self._ended_looks = 0
            return
        self._ended_looks += looks
        if self._ended_looks >= _ENDED_LOOKS:
            self._stalled = None
            ended_well = not self.killed and all(one.state in (RUNNING, WAITING, EXITED) for one in run.ranks.values())
            if self._on_stall_end is not None and ended_well:
                self._on_stall_end()

    def _ask(self, run: RecordedRun) -> None:
        """Asks all ranks where they stand and waits a little for their answers."""
        before = {rank: len(one.events) for rank, one in run.ranks.items()}
        try:
            with (self._folder / layout.REQUEST_FILE).open("a", encoding="utf-8") as file:
                file.write("launcher\n")
        except OSError as error:
            raise TraceError(f"{self._folder}: the ranks cannot be asked: {error.strerror or error}") from error
        end = time.monotonic() + _ANSWER_TIME
        while time.monotonic() < end and self._process.poll() is None:
            time.sleep(0.1)
            self._follow.poll()
            alive = [(rank, one) for rank, one in run.ranks.items() if one.state in (WAITING, RUNNING)]
            if all(len(one.events) > before.get(rank, 0) for rank, one in alive):
                return

    def await_others(self) -> None:
        """Gives the ranks of other nodes some seconds to end as those of this node did."""
        end = time.monotonic() + _OTHERS_TIME
        while self.error is None and time.monotonic() < end:
            self.look()
            if not any(one.state in (WAITING, RUNNING) for one in self._follow.run.ranks.values()):
                return
            time.sleep(0.25)

    def waits(self) -> bool:
        """Whether a rank waits in a collective."""
        return any(one.state == WAITING for one in self._follow.run.ranks.values())

    def workers(self) -> list[int]:
        """Pids of the ranks that run on this host."""
        found = []
        for one in self._follow.run.ranks.values():
            start = next((e.detail for e in one.events[:1] if e.kind == START), None)
            if start is not None and start["host"] == socket.gethostname() and process_lives(start["pid"], start["ticks"]):
                found.append(start["pid"])
        return found


def traced_environment(folder: Path, run_id: str) -> dict[str, str]:
    """The environment in which every Python process that becomes a rank traces itself."""
    here = Path(__file__).resolve().parent
    environment = dict(os.environ)
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(here / "boot") + (os.pathsep + before if before else "")
    environment[layout.ENV_DIRECTORY] = str(folder)
    environment[layout.ENV_RUN] = run_id
    environment[layout.ENV_PACKAGE] = str(here.parent)
    environment[layout.ENV_STALL] = "0"  # the launcher asks
    environment.pop(layout.ENV_OWNER, None)
    return environment


def resolve(command: Sequence[str]) -> list[str]:
    """COMMAND with a program that can be run. Raises LaunchError without one.

    `torchrun` and `accelerate` that are not on PATH are taken from the environment of this interpreter, as a script next to it
    or as their module; `python` that is not on PATH becomes this interpreter.
    """
    if not command:
        raise LaunchError("no command to run; give one after --")
    program, *arguments = command
    if shutil.which(program) is not None:
        return [program, *arguments]
    if os.sep not in program:
        beside = Path(sys.executable).parent / program
        if os.access(beside, os.X_OK) and beside.is_file():
            return [str(beside), *arguments]
        if program in _RUN_MODULES:
            return [sys.executable, "-m", _RUN_MODULES[program], *arguments]
        if program in ("python", "python3"):
            return [sys.executable, *arguments]
    raise LaunchError(f"{program}: command not found")


def is_plain_python(command: Sequence[str]) -> bool:
    """Whether COMMAND is an interpreter that runs a script of the user's, and no launcher of ranks."""
    if not Path(command[0]).name.startswith("python"):
        return False
    for at, word in enumerate(command[1:], 1):
        if word == "-m":
            module = command[at + 1] if at + 1 < len(command) else ""
            return not module.startswith(("torch.distributed", "accelerate", "deepspeed"))
        if not word.startswith("-"):
            return Path(word).name not in ("torchrun", "accelerate", "deepspeed")
    return False


class _Signals:
    """SIGINT and SIGTERM that came while the command ran."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._first = 0.0

    def add(self, number: int) -> None:
        self._first = self._first or time.monotonic()
        self.received.append(number)

    def should_end(self, waits: bool) -> bool:
        """Whether to end the command's processes: on the second Ctrl-C, or some seconds after the first when a rank waits in a
        collective, where Python cannot answer the signal and torchrun would wait 30 seconds for it."""
        interrupts = self.received.count(signal.SIGINT)
        return interrupts > 1 or (interrupts == 1 and waits and time.monotonic() - self._first > _INTERRUPT_TIME)


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[_Signals]:
    """Passes SIGINT and SIGTERM on to the command's process group."""
    signals = _Signals()

    def pass_on(number: int, frame: FrameType | None) -> None:
        signals.add(number)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
