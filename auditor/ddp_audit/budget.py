"""The last net under an audit: memory and processor time that one script may take, whatever its text.

Work is counted where it is done, so that audits come out alike on every machine. What escapes the count is ended here: memory by
the system's limit on this process, which makes Python raise MemoryError, and time by a thread that looks at the clock of the
process now and then and raises GaveUp in the thread that audits.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

MEMORY = 900 * 1024 * 1024  # bytes that an audit may take, in addition to what the process has
SECONDS = 60.0  # of processor time, for one script
_LOOKS = 1.0  # seconds between two looks at the clock, at least
NEEDS_TOO_MUCH = f"needs more than {MEMORY // 1024 // 1024} MB of memory"
TOO_MUCH_MEMORY = f"was not audited: it {NEEDS_TOO_MUCH}"


class GaveUp(BaseException):
    """The time is spent. No `except Exception` of the auditor holds it up."""


def too_slow() -> str:
    """Return what is said of a script whose time is spent."""
    return f"was not audited: it {takes_too_long()}"


def takes_too_long() -> str:
    """Return the predicate of what took its time and was not done."""
    return f"takes more than {SECONDS:g} seconds of processor time"


_together: list[float] = []  # since when what is bounded together takes its time


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Let all that is bounded inside of the block share one budget of memory and time, as an audit and the run that explains it."""
    with bounded_memory():
        _together.append(time.process_time())
        try:
            yield
        finally:
            _together.pop()


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process take no more than MEMORY in addition to what it has. A lower limit that it has already stays."""
    try:
        import resource

        with open("/proc/self/statm", "rb") as stream:  # noqa: PTH123  pathlib costs more than the read
            now = int(stream.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = min(limit for limit in (now + MEMORY, soft, hard) if limit != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    except (ImportError, OSError, ValueError):  # not Linux
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let this process reserve `size` bytes more than it may: address space that is not all used, as that of a deep stack."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY:
            raise ValueError
        resource.setrlimit(resource.RLIMIT_AS, (soft + size if hard == resource.RLIM_INFINITY else min(soft + size, hard), hard))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Watch:
    """Raises GaveUp in a thread once the process has taken its time since `since`."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.since = _together[-1] if _together else time.process_time()
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.is_spent = False
        threading.Thread(target=self._run, name="ddp-audit-budget", daemon=True).start()

    def _run(self) -> None:
        while not self.ended.wait(max(_LOOKS, SECONDS - (time.process_time() - self.since))):
            with self.lock:
                if not self.ended.is_set() and time.process_time() - self.since >= SECONDS:
                    self.is_spent = True
                    _raise_in(self.thread, GaveUp)
                    return

    def enter(self, thread: int) -> None:
        """Let the time that is spent end the work of another thread from now on, called in the one whose work it was."""
        with self.lock:
            self.thread = thread
        self._let_arrive()

    def end(self) -> None:
        with self.lock:
            self.ended.set()
        self._let_arrive()

    def _let_arrive(self) -> None:
        """Take what was raised in this thread too late to end its work.

        Taking it back (PyThreadState_SetAsyncExc with no exception) would leave CPython 3.11 looking for it forever: every thread
        that is traced then stands still in its next call.
        """
        if self.is_spent:
            with contextlib.suppress(GaveUp):
                for _ in range(2):  # an end of a loop is where the interpreter looks
                    pass


_watches: list[_Watch] = []


@contextlib.contextmanager
def bounded_time() -> Iterator[None]:
    """Raise GaveUp inside the block once it has taken its processor time. A block inside another one counts to it.

    Raise MemoryError where there is no room for the thread that looks at the clock.
    """
    if _watches or sys.implementation.name != "cpython" or sys.platform == "emscripten":  # a browser has no threads for Python
        yield
        return
    try:
        watch = _Watch()
    except RuntimeError:  # no room for the stack of its thread
        raise MemoryError from None
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)
        watch.end()


@contextlib.contextmanager
def in_this_thread() -> Iterator[None]:
    """The work under a bound of time goes on in the thread that enters this block."""
    before = [(watch, watch.thread) for watch in _watches]
    for watch, _ in before:
        watch.enter(threading.get_ident())
    try:
        yield
    finally:
        for watch, thread in before:
            watch.enter(thread)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    import ctypes  # a tenth of the audit of a script, and seldom needed

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
