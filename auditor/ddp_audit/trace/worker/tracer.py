"""The state of the tracer in one rank: its file, its place in the run, and how an event is recorded."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch

import ddp_audit
from ddp_audit import events
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.frames import Frames, Stack
from ddp_audit.trace.worker.ring import Place, Ring, is_marked, mark, set_number

_MOST_EARLY = 1000  # events kept before the rank is known
_MOST_LASTING = 4096


class Group:
    """A process group as the trace names it, with the count of its collectives."""

    __slots__ = ("name", "next_index", "ranks")

    def __init__(self, name: str, ranks: tuple[int, ...]) -> None:
        self.name = name
        self.ranks = ranks
        self.next_index = 0


class Pending:
    """A collective that is not known to have returned. `work` is torch's ScriptObject, or None before the call has returned."""

    __slots__ = ("group", "index", "is_async", "lingers", "on_device", "place", "work")

    def __init__(self, place: Place, group: Group, index: int) -> None:
        self.place = place
        self.group = group
        self.index = index
        self.work: Any = None
        self.is_async = True
        self.lingers = False  # gloo's reduce_scatter: its Work never says that it is completed
        self.on_device = False


class Prepared:
    """An event whose details are made once, for what comes by in every step. `group`: the name of its process group."""

    __slots__ = ("detail", "group", "kind")

    def __init__(self, kind: str, group: str = events.DEFAULT_GROUP, **detail: Any) -> None:
        self.kind = kind
        self.group = group
        self.detail = detail


class Tracer:
    """Records what one rank does. `on` is False before the file is open, in forked children, and after a failure."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.on = False
        self.failed = False
        self.rank = -1
        self.world_size = 0
        self.cwd = os.getcwd()
        self.pid = os.getpid()
        self.ring: Ring | None = None
        self.frames = Frames(self._define_stack, os.path.dirname(torch.__file__), self.cwd)
        self.with_stack = os.environ.get(layout.ENV_STACK, "1") != "0"
        self.pending: deque[Pending] = deque(maxlen=4096)  # the asynchronous ones
        self.groups: dict[Any, Group] = {}  # by ProcessGroup
        self.names: dict[str, Group] = {}
        self.buckets = 0  # gradient buckets all-reduced so far
        self.user_elements = 0  # elements that the user's own all-reduces carried so far
        self.backward: Stack | None = None  # the backward pass under way, for threads without Python frames
        self.last_time = time.time()
        self.last_sync: dict[int, Pending | None] = {}  # by thread: its last collective, where that is a synchronous one
        self.collectives = 0
        self.digest = 0
        self.kernel = "python"  # what the START event says
        self.native: Any = None  # the native kernel; it then keeps last_sync, pending, collectives and digest itself
        # What is called in every step: the native kernel puts its functions here.
        self.note: Callable[..., tuple[Any, Stack] | None] = self.note_in_python
        self.finish: Callable[[Any, int, int], None] = self.finish_in_python
        self.native_fingerprint: Callable[[Any], int | None] | None = None
        self.native_gradients: Callable[[list[torch.nn.Parameter]], Callable[[], object]] | None = None
        self._definitions: dict[Any, int] = {}  # of events, by everything that they say
        self.when_open: Callable[[], None] | None = None
        self.forget_calls: Callable[[], None] = lambda: None  # has the kernels look up their definitions again
        self._segment = 0
        # Events that say what the run is and may be overwritten: all that _write takes of them.
        self._lasting: list[tuple[str, str, Mapping[str, Any], int, int, Stack | None, float]] = []
        self._early: list[tuple[str, str, Mapping[str, Any], int, int, Stack | None, float]] = []
        self.threads = {threading.main_thread().ident: 0}

    # -- life ---------------------------------------------------------------------------------------------------------

    def open(self, rank: int, world_size: int) -> bool:
        """Makes this rank's file. False where another live process already writes it."""
        if self.ring is not None or self.failed:
            return self.on
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, layout.FILE_PATTERN.format(rank))
        if not _make_way(path):
            return False
        self.ring = Ring(path, rank, _limit())
        self.rank, self.world_size = rank, world_size
        os.environ[layout.ENV_OWNER] = str(self.pid)
        self.frames.reset()
        self.on = True
        start = {
            "rank": rank,
            "world_size": world_size,
            "pid": self.pid,
            "host": socket.gethostname(),
            "ticks": start_ticks(self.pid),
            "thread": threading.main_thread().ident,
            "cwd": self.cwd,
            "run": run_id(),
            "restart": restart(),
            "argv": sys.argv[:50],
            "kernel": self.kernel,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }
        self.event(events.START, detail=start)
        for kind, group, detail, number, value, stack, now in self._early:
            self._write(kind, group, detail, number, value, stack, now)
        self._early.clear()
        if rank == 0:
            self._describe_run()
        if self.when_open is not None:
            self.when_open()
        return True

    def fail(self, error: BaseException) -> None:
        """Ends tracing with one line on stderr. The training goes on."""
        if self.failed:
            return
        self.failed = True
        self.on = False
        text = " ".join(str(error).split())[:300]
        try:
            if self.ring is not None:
                self.ring.end(time.time())
            who = f"rank {self.rank}" if self.rank >= 0 else "this process"
            sys.stderr.write(f"ddp-audit: tracing of {who} has ended: {type(error).__name__}: {text}\n")
        except Exception:  # stderr may be closed; there is nobody left to tell
            pass

    def forget(self) -> None:
        """In a forked child: the file is the parent's."""
        if self.ring is not None:
            self.on = False
            self.failed = True
        self._early.clear()
        self.pid = os.getpid()

    def _describe_run(self) -> None:
        """Adds to run.json what only a worker knows; writes it where there was no launcher."""
        path = os.path.join(self.directory, layout.RUN_FILE)
        known: dict[str, Any] = {}
        try:
            with open(path, encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            pass
        if known.get("run") != run_id():  # left by an earlier run
            known = {"version": 1, "run": run_id(), "command": sys.argv[:50], "start": time.time(), "cwd": self.cwd}
        known["world_size"] = self.world_size
        known.setdefault("tool", {"name": "ddp-audit", "version": ddp_audit.__version__})
        known["torch"] = str(torch.__version__)
        known["python"] = platform.python_version()
        known["host"] = socket.gethostname()
        temporary = f"{path}.{self.pid}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(known, file, indent=1)
        os.replace(temporary, path)

    # -- recording ----------------------------------------------------------------------------------------------------

    def _define_stack(self, frames: list[tuple[str, int, str]]) -> int:
        return 0 if self.ring is None or not frames else self.ring.define(layout.STACK_TEXT, frames)

    def thread(self) -> int:
        """A small number for the calling thread; 0 is the main thread."""
        ident = threading.get_ident()
        number = self.threads.get(ident)
        if number is None:
            number = self.threads[ident] = min(len(self.threads), 0xFFFF)
        return number

    def event(
        self,
        kind: str,
        *,
        group: str = events.DEFAULT_GROUP,
        detail: Mapping[str, Any] | None = None,
        number: int = 0,
        value: int = 0,
        stack: Stack | None = None,
    ) -> Place | None:
        """Records an event that is not a collective. Before the rank is known it is kept for later. Raises nothing."""
        if self.failed:
            return None
        now = time.time()
        try:
            if not self.on:
                if self.ring is None and len(self._early) < _MOST_EARLY:
                    self._early.append((kind, group, detail or {}, number, value, stack, now))
                return None
            self.last_time = now
            return self._write(kind, group, detail or {}, number, value, stack, now)
        except Exception as error:
            self.fail(error)
            return None

    def note_in_python(self, prepared: Prepared, value: int = 0, number: int = 0) -> tuple[Any, Stack] | None:
        """Records a prepared event at the user's line; its place, for `finish`, and its stack. Raises nothing."""
        if self.failed:
            return None
        try:
            stack = self.frames.at(sys._getframe(1))
        except Exception as error:
            self.fail(error)
            return None
        event = self.event(prepared.kind, group=prepared.group, detail=prepared.detail, value=value, number=number, stack=stack)
        return event, stack

    def finish_in_python(self, place: Place | None, number: int, state: int) -> None:
        """Sets the number of a noted event, and notes that what it is of has returned or raised."""
        if place is not None:
            set_number(place, number)
            mark(place, state, time.time())

    def _write(
        self, kind: str, group: str, detail: Mapping[str, Any], number: int, value: int, stack: Stack | None, now: float
    ) -> Place | None:
        ring = self.ring
        if ring is None:
            return None
        if self.native is not None:
            self.native.returned(now)
        before = self.last_sync.get(threading.get_ident())
        if before is not None and not is_marked(before.place):
            mark(before.place, layout.DONE, now)
        try:
            key = (kind, group, stack, tuple(detail.items()))
            definition = self._definitions.get(key)
        except TypeError:  # a list among the details: an event that does not come often
            key, definition = None, None
        if definition is None:
            definition = self.define_event(kind, group, detail, stack)
            if key is not None:
                if len(self._definitions) > 1 << 14:
                    self._definitions.clear()
                self._definitions[key] = definition
        if kind in layout.LASTING and ring.segment and len(self._lasting) < _MOST_LASTING:
            self._lasting.append((kind, group, detail, number, value, stack, now))
        return ring.write_value(self.thread(), definition, number, now, value)

    def renew(self) -> None:
        """Where a new part of the ring is written: has all that it needs to be read written into it, definitions where they are
        asked for again. Called by the watch, some records late; the reader leaves those out."""
        ring = self.ring
        if ring is None or not self.on or ring.segment == self._segment:
            return
        self._segment = ring.segment
        ring.forget_definitions()
        self._definitions.clear()
        self.frames.reset()
        self.forget_calls()
        for kind, group, detail, number, value, stack, now in list(self._lasting):
            definition = self.define_event(kind, group, detail, stack)
            ring.write_value(self.thread(), definition, number, now, value, layout.REPEATED)

    def stand(self, frame: FrameType | None, seconds: float = 0.0) -> None:
        """Notes where the main thread stands, of a process that is killed the last that is known; `seconds`: for how long, at one
        place of torch.distributed."""
        if self.ring is not None and self.on:
            self.ring.stand(self._define_stack(self.frames.of_thread(frame).frames), seconds)

    def define_event(self, kind: str, group: str, detail: Mapping[str, Any], stack: Stack | None) -> int:
        """Writes what repeats of an event into the file; returns its id."""
        ring = self.ring
        if ring is None:
            raise RuntimeError("no file")
        frames = stack.frames if stack is not None else []
        known = ring.define(layout.STACK_TEXT, frames) if frames else 0
        return ring.define(layout.EVENT_TEXT, {"kind": kind, "group": group, "stack": known, "detail": detail})

    # -- groups -------------------------------------------------------------------------------------------------------

    def group(self, process_group: Any) -> Group:
        """The trace's record of a process group; writes a GROUP event when it is new."""
        found = self.groups.get(process_group)
        if found is None:
            found = self._meet(process_group)
        return found

    def forget_groups(self) -> None:
        """Lets go of the process groups, some of which the program has destroyed."""
        self.groups.clear()
        if self.native is not None:
            self.native.forget_groups()

    def has_pending(self) -> bool:
        """Whether an asynchronous collective is not known to have returned."""
        return bool(self.pending) or (self.native is not None and self.native.has_pending())

    def _meet(self, process_group: Any) -> Group:
        from torch.distributed import distributed_c10d as c10d

        is_default = process_group is c10d.GroupMember.WORLD
        name = events.DEFAULT_GROUP if is_default else str(process_group.group_name)
        try:
            ranks = tuple(int(r) for r in c10d.get_process_group_ranks(process_group))
        except Exception:  # a group that torch.distributed did not register
            ranks = tuple(range(process_group.size()))
        group = self.names.get(name)
        if group is None or group.ranks != ranks:
            # A name that comes back with other ranks (torch counts its names again after everything was destroyed) goes on
            # counting.
            count = group.next_index if group is not None else 0
            group = self.names[name] = Group(name, ranks)
            group.next_index = count
            detail = {"action": "seen", "name": name, "ranks": layout.pack_ranks(ranks), **described(process_group)}
            self.event(events.GROUP, group=name, detail=detail)
        self.groups[process_group] = group
        return group


def described(group: Any) -> dict[str, str]:
    """What the maker of a group called it, for its event; empty where he did not."""
    description = str(getattr(group, "group_desc", "") or "")
    return {} if description in ("", "default_pg", "undefined") else {"desc": description[:80]}


def _limit() -> int:
    """The size of a rank's file from which on it is a ring, in bytes."""
    given = os.environ.get(layout.ENV_LIMIT, "")
    return (int(given) if given.isascii() and given.isdigit() and len(given) < 8 else layout.DEFAULT_LIMIT_MB) << 20


def start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since boot: with the pid it names one process. 0 where it cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def restart() -> int:
    """How often torchrun has restarted the ranks before."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdigit() else 0


def run_id() -> str:
    """Names the run: the launcher's id, or what torchrun gave to all its workers."""
    given = os.environ.get(layout.ENV_RUN)
    if given:
        return given
    names = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
    return ":".join(os.environ.get(name, "") for name in names)


def _make_way(path: str) -> bool:
    """Moves an earlier file of this rank aside (torchrun restarts workers). False when its writer is alive."""
    try:
        with open(path, "rb") as file:
            head = file.read(layout.HEADER.size)
    except FileNotFoundError:
        return True
    if len(head) == layout.HEADER.size:
        magic, _, _, _, _, pid, heartbeat, _ = layout.HEADER.unpack(head)
        if magic == layout.MAGIC and pid != os.getpid() and start_ticks(pid) and time.time() - heartbeat < 10:
            return False
    count = 0
    while os.path.exists(f"{path}.{count}"):
        count += 1
    os.replace(path, f"{path}.{count}")
    return True
