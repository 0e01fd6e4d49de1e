"""Notes where a process leaves by its own doing: `sys.exit`, `os._exit`, and signals that it sends to itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ddp_audit import events
from ddp_audit.trace.worker.frames import Stack
from ddp_audit.trace.worker.tracer import Tracer


class Departures:
    """What stands around the functions. `safely` calls a part of the tracer whose error must not reach the program, `progress`
    tells how far the training has come. `patches`: owner, name, what stands around it, and further modules that have it.

    `code` is what is known of how the interpreter leaves.
    """

    def __init__(self, tracer: Tracer, safely: Callable[..., Any], progress: Callable[[], object]) -> None:
        self._tracer = tracer
        self._safely = safely
        self._progress = progress
        self.code: int | None = 0
        self._exit: tuple[Stack, object] | None = None
        # The modules that define the functions have them too: pickle looks for a function there.
        self.patches: list[tuple[ModuleType, str, Callable[..., Any], tuple[ModuleType, ...]]] = [
            (sys, "exit", self._leave, ()),
            (os, "_exit", self._leave_at_once, _modules("posix")),
            (os, "kill", self._kill, _modules("posix")),
            (signal, "raise_signal", self._raise_signal, _modules("_signal")),
        ]

    def at(self) -> Stack | None:
        """Where `sys.exit` was called last, unless the training has gone on since: somebody has caught its SystemExit."""
        if self._exit is None or self._exit[1] != self._progress():
            return None
        return self._exit[0]

    def _leave(self, original: Any, status: Any = None, *args: Any) -> Any:
        self.code = status if isinstance(status, int) else 0 if status is None else 1
        if threading.current_thread() is threading.main_thread():
            self._safely(self._note_exit)
        return original(status, *args)

    def _note_exit(self) -> None:
        self._exit = self._tracer.frames.at(sys._getframe(1)), self._progress()

    def _leave_at_once(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._is_rank():
            self._safely(self._exit_event, args[0] if args else kwargs.get("status"))
        return original(*args, **kwargs)

    def _exit_event(self, code: Any) -> None:
        code = code if isinstance(code, int) else None
        self._tracer.event(events.EXIT, detail={"code": code}, stack=self._tracer.frames.at(sys._getframe(1)))

    def _kill(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._is_rank() and (args[0] if args else kwargs.get("pid")) == self._tracer.pid:
            self._safely(self._stand)
        return original(*args, **kwargs)

    def _raise_signal(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._is_rank():
            self._safely(self._stand)
        return original(*args, **kwargs)

    def _stand(self) -> None:
        """Notes where the calling thread stands, since there may be no next heartbeat."""
        self._tracer.stand(sys._getframe(1))
        if self._tracer.ring is not None:
            self._tracer.ring.heartbeat(time.time())

    def _is_rank(self) -> bool:
        """Whether this process is the rank, and no child that was forked from it."""
        return self._tracer.on and self._tracer.pid == os.getpid()


def _modules(name: str) -> tuple[ModuleType, ...]:
    return (sys.modules[name],) if name in sys.modules else ()
