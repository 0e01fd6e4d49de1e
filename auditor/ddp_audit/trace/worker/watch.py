"""A thread that notes which collectives have returned, shows that the process lives, and answers 'where do you stand?'."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from ddp_audit import events
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.locked import LockedStacks
from ddp_audit.trace.worker.node import Files, Node
from ddp_audit.trace.worker.ring import is_marked, mark
from ddp_audit.trace.worker.tracer import Pending, Tracer, run_id

_STOP_TIME = 2.0  # seconds that the thread has to end
_BEAT = 0.1  # seconds between looks at pending collectives
_BUSY_BEAT = 0.5  # while the program goes on, and the native kernel looks at the end of each backward pass
_SHOWN_EVERY = 1.0
_QUIET = 0.5  # seconds without an event or a collective after which the program may be waiting
_DEVICE_QUIET = 2.0  # Works of a device are asked only after so long without a new event: asking during graph capture is an error
# Files of torch whose functions wait for other ranks in C++: of a store, of a rendezvous.
_MEETINGS = tuple(
    os.path.join("torch", "distributed", *parts)
    for parts in (("distributed_c10d.py",), ("rendezvous.py",), ("elastic", "utils", "store.py"))
)


class Watch:
    """Started once a process. The thread is a daemon: it never keeps a process alive."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._node: Node | None = None
        self._stacks: LockedStacks | None = None
        self._asked = self._request_time()
        stall = os.environ.get(layout.ENV_STALL, "30")
        self._stall = float(stall) if stall.replace(".", "", 1).isdigit() else 30.0
        self._asked_for: object = None
        self._stood: object = None  # the place where ranks meet at which the main thread stands
        self._stood_since = 0.0
        self._unbox: Callable[[Any], Any] = torch._C._distributed_c10d.Work.unbox
        self._ends = threading.Lock()  # held until the thread is to end: waiting for it costs less than for an Event
        self._ends.acquire()
        if tracer.on:
            self.begin()
        self._thread = threading.Thread(target=self._run, name="ddp-audit-watch", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Makes the file for stacks, so that a fatal signal before the first beat is reported too."""
        self._not_locked()

    def stop(self) -> None:
        """Ends the thread. At the interpreter's exit it must not run on: a thread that comes back from torch's C++ code then is
        ended in a place where C++ answers with abort()."""
        if self._ends.locked():
            self._ends.release()
        self._thread.join(_STOP_TIME)
        if self._node is not None and not self._thread.is_alive():
            self._node.close()
        if self._stacks is not None:
            self._stacks.close()

    def _run(self) -> None:
        tracer = self._tracer
        beat = 0.0
        while not tracer.failed and not self._ends.acquire(timeout=self._pause()):
            if not tracer.on or tracer.ring is None:
                continue
            try:
                now = time.time()
                self._not_locked()
                self.poll(now)
                self._stand(now)
                tracer.ring.heartbeat(now)
                tracer.renew()
                self._answer(now)
                if now - beat >= 1.0:
                    beat = now
                    if tracer.ring.was_removed():
                        raise FileNotFoundError("its trace file was removed")
                    self._ask(now)
            except Exception as error:
                tracer.fail(error)
        if tracer.failed and self._stacks is not None:
            self._show_on()
            self._stacks.close()

    def _stand(self, now: float) -> None:
        """Notes where the main thread stands, and for how long where ranks meet outside of collectives."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        place = _place(frame) if frame is not None and frame.f_code.co_filename.endswith(_MEETINGS) else None
        if place is None or place != self._stood:
            self._stood, self._stood_since = place, now
        self._tracer.stand(frame, now - self._stood_since)

    def _show_on(self) -> None:
        """After the tracer has ended: shows once a second where the main thread stands, so that a hang is reported all the same."""
        tracer, stacks = self._tracer, self._stacks
        before: object = None
        while stacks is not None and tracer.ring is not None and not self._ends.acquire(timeout=_SHOWN_EVERY):
            try:
                tracer.ring.heartbeat(time.time())
                place = _place(sys._current_frames().get(threading.main_thread().ident or 0))
                if place != before:
                    before = place
                    stacks.show()
            except Exception:  # a full disk: there is nothing left to show it with
                return

    def _pause(self) -> float:
        """Seconds until the next look."""
        native = self._tracer.native
        if native is None or time.time() - max(self._tracer.last_time, native.last_time) > _QUIET:
            return _BEAT
        return _BUSY_BEAT if self._stacks is None else min(_BUSY_BEAT, self._stacks.patience / 3 or _BUSY_BEAT)

    def _not_locked(self) -> None:
        if self._stacks is None:
            self._stacks = LockedStacks(self._tracer.directory, self._tracer.rank)
        self._stacks.beat()

    def poll(self, now: float) -> None:
        """Marks the pending collectives whose Work is completed."""
        native = self._tracer.native
        if native is not None:
            last = max(self._tracer.last_time, native.last_time)
            native.poll(now, now - last >= _DEVICE_QUIET)
            return
        pending = self._tracer.pending
        done: dict[Any, int] = {}
        kept: list[Pending] = []
        for sync in list(self._tracer.last_sync.values()):
            if sync is not None:
                self._look(sync, now, done)
        for _ in range(len(pending)):
            try:
                entry = pending.popleft()
            except IndexError:
                break
            if not self._look(entry, now, done):
                kept.append(entry)
        for entry in reversed(kept):
            if entry.lingers and done.get(entry.group, -1) > entry.index:
                mark(entry.place, layout.DONE, now)
            else:
                pending.appendleft(entry)

    def _look(self, entry: Pending, now: float, done: dict[Any, int]) -> bool:
        """Whether a collective has returned; marks it then. `done` gets the last such index of each group."""
        if not is_marked(entry.place):
            if entry.work is None or (entry.on_device and now - self._tracer.last_time < _DEVICE_QUIET):
                return False
            if not self._is_completed(entry.work):
                return False
            mark(entry.place, layout.DONE, now)
        if entry.index != layout.NO_INDEX:
            done[entry.group] = max(done.get(entry.group, -1), entry.index)
        return True

    def _is_completed(self, work: Any) -> bool:
        try:
            unboxed = self._unbox(work)
            return type(unboxed).__name__ == "FakeWork" or bool(unboxed.is_completed())
        except Exception:  # a Work that cannot be asked must not look like one that waits
            return True

    def _request_time(self) -> int:
        try:
            return os.stat(os.path.join(self._tracer.directory, layout.REQUEST_FILE)).st_mtime_ns
        except OSError:
            return 0

    def _request(self, now: float) -> int:
        """When the ranks were last asked where they stand."""
        if self._node is None:
            try:
                shared = os.path.join(self._tracer.directory, layout.REQUEST_FILE)
                self._node = Node(Files(shared, run_id()), self._tracer.rank)
            except OSError:  # no place for the folder that the ranks of a host share
                return self._request_time()
        return self._node.latest(now)

    def _answer(self, now: float) -> None:
        asked = self._request(now)
        if asked <= self._asked:
            return
        self._asked = asked
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = self._tracer.frames.at(frame)
        self._tracer.event(events.STACK, detail={"request": asked}, stack=stack)

    def _ask(self, now: float) -> None:
        """Asks all ranks where they stand when this one has waited too long in one collective."""
        oldest, since = self._oldest()
        if oldest is None or not self._stall or oldest == self._asked_for or now - since < self._stall:
            return
        self._asked_for = oldest
        if self._node is not None:
            self._node.ask(now)
            return
        with open(os.path.join(self._tracer.directory, layout.REQUEST_FILE), "a", encoding="utf-8") as file:
            file.write(f"rank {self._tracer.rank} waits\n")

    def _oldest(self) -> tuple[object, float]:
        """The oldest collective that is not known to have returned, and its time."""
        if self._tracer.native is not None:
            time_of_it = self._tracer.native.oldest()
            return time_of_it, time_of_it or 0.0
        entries = [*self._tracer.last_sync.values(), *list(self._tracer.pending)[:1]]
        open_ones = [e for e in entries if e is not None and not e.lingers and not is_marked(e.place)]
        oldest = min(open_ones, key=_time_of, default=None)
        return oldest, 0.0 if oldest is None else _time_of(oldest)


def _place(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """The instructions at which a thread and all its callers are."""
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def _time_of(entry: Pending) -> float:
    return float(layout.RECORD.unpack_from(*entry.place)[6])
