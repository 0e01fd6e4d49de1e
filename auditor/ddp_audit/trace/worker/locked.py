"""Where a process stands whose interpreter is locked, by a call in C that keeps the GIL, or that a fatal signal ends.

The watch thread sets the timer of faulthandler again with every beat. Where no beat comes for some seconds, the timer's thread,
which is C and needs no lock of the interpreter, writes the stacks into a file next to the trace, `rank-00000.stacks`; the reader
takes the line of the main thread from there (`trace/locked.py`). The next beat empties the file. No signal is used: handlers and
masks are the program's own.

A process has one such timer. A program that sets it for itself has it; the tracer's is not set again then. A child that was forked
while the timer runs would wait for its thread forever when it ends, so it is taken back before each fork.

At a fatal signal (SIGSEGV, SIGABRT, ..) faulthandler writes the stacks into the same file. A process has one such handler too: it
is set before the program runs, so that what the program or a library of its sets comes first, and the program gets the answer that
none is set. What sets faulthandler for itself has it from then on. Until the file is known, after it, and in forked children the
handler writes to nowhere: to take it back would put old handlers in the place of the program's.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ddp_audit.trace.worker import layout

_HOW_OPENED = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC


class _Timer:
    """The process's timer. `use` is what sets it; None before `guard`, and after the program has set it for itself."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held through a fork, so that no thread sets the timer meanwhile
        self.use: Callable[..., Any] | None = None
        self.is_set = False

    def set(self, patience: float, descriptor: int) -> None:
        if self.use is not None:
            self.use(patience, file=descriptor)
            self.is_set = True

    def take_back(self) -> None:
        if self.is_set:
            self.is_set = False
            faulthandler.cancel_dump_traceback_later()

    def before_fork(self) -> None:
        self.lock.acquire()
        self.take_back()


class _Fatal:
    """The process's handler of fatal signals. `use` is what sets it; None before `guard`, and where it is somebody else's."""

    def __init__(self) -> None:
        self.use: Callable[..., Any] | None = None
        self._nowhere = -1

    def guard(self) -> None:
        if faulthandler.is_enabled():  # python -X faulthandler
            return
        enable, disable, is_enabled = faulthandler.enable, faulthandler.disable, faulthandler.is_enabled
        self._nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        enable(file=self._nowhere)
        self.use = enable

        @functools.wraps(enable)
        def enable_for_program(*args: Any, **kwargs: Any) -> Any:
            self.use = None
            return enable(*args, **kwargs)

        @functools.wraps(disable)
        def disable_for_program() -> Any:
            return False if self.use is not None else disable()

        @functools.wraps(is_enabled)
        def is_enabled_for_program() -> bool:
            return self.use is None and is_enabled()

        faulthandler.enable = enable_for_program
        faulthandler.disable = disable_for_program
        faulthandler.is_enabled = is_enabled_for_program
        os.register_at_fork(after_in_child=self.write_nowhere)

    def write_to(self, descriptor: int) -> None:
        if self.use is not None:
            self.use(file=descriptor)

    def write_nowhere(self) -> None:
        self.write_to(self._nowhere)


_timer = _Timer()
_fatal = _Fatal()


def guard() -> None:
    """Notices from now on when the program sets the timer for itself. Called once, before the program runs."""
    _fatal.guard()
    original = faulthandler.dump_traceback_later

    def dump_traceback_later(*args: Any, **kwargs: Any) -> Any:
        with _timer.lock:
            _timer.use, _timer.is_set = None, False
        return original(*args, **kwargs)

    dump_traceback_later.__doc__ = original.__doc__
    faulthandler.dump_traceback_later = dump_traceback_later
    _timer.use = original
    os.register_at_fork(before=_timer.before_fork, after_in_parent=_timer.lock.release, after_in_child=_timer.lock.release)


class LockedStacks:
    """The timer and the file of one rank. Where the file cannot be made there is no timer."""

    def __init__(self, directory: str, rank: int) -> None:
        patience = os.environ.get(layout.ENV_LOCKED, "3")
        self.patience = float(patience) if patience.replace(".", "", 1).isdigit() else 3.0
        self._path = os.path.join(directory, layout.STACKS_PATTERN.format(rank))
        self._descriptor = -1
        self._next = 0.0
        self._is_shown = False
        if self.patience and _timer.use is not None:
            with suppress(OSError):
                self._descriptor = os.open(self._path, _HOW_OPENED, 0o644)
                _fatal.write_to(self._descriptor)

    def beat(self) -> None:
        """Says that the interpreter is not locked."""
        now = time.monotonic()
        if self._descriptor < 0 or now < self._next:
            return
        self._next = now + self.patience / 3
        with _timer.lock:
            _timer.take_back()
            if os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, 0)
            _timer.set(self.patience, self._descriptor)

    def show(self) -> None:
        """Writes where all threads stand now: of a rank whose tracer has ended nothing else tells. Raises OSError."""
        with _timer.lock:
            _timer.take_back()
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, _HOW_OPENED, 0o644)
                _fatal.write_to(self._descriptor)
            os.ftruncate(self._descriptor, 0)
            faulthandler.dump_traceback(self._descriptor)
            self._is_shown = True

    def close(self) -> None:
        """Takes the timer back, and the file away where nothing is in it that is of use after the end."""
        if self._descriptor < 0:
            return
        with _timer.lock:
            _timer.take_back()
            _fatal.write_nowhere()
            if self._is_shown or not os.fstat(self._descriptor).st_size:
                with suppress(OSError):
                    os.unlink(self._path)
            os.close(self._descriptor)
            self._descriptor = -1
