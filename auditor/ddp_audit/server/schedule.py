"""When documents are audited: a moment after their last change, one at a time, outside of the thread that speaks the protocol."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")
QUIET = 0.25  # seconds without a change until a document is audited: longer than between two keys of most, and hardly noticed


class Worker:
    """One thread that does what it is given in order. It does not keep the process alive: nobody waits for an audit at exit."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_started = False

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """What `work` returns, made in the thread. Raises what it raises."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._work, name="audits", daemon=True).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def do() -> None:
            set_it: Callable[[Any], None]
            outcome: Any
            try:
                set_it, outcome = future.set_result, work()
            except BaseException as error:
                set_it, outcome = future.set_exception, error
            try:
                loop.call_soon_threadsafe(lambda: None if future.cancelled() else set_it(outcome))
            except RuntimeError:  # the loop has ended meanwhile
                return

        self._waiting.put(do)
        return await future

    def _work(self) -> None:
        while True:
            self._waiting.get()()


class Schedule:
    """The documents that wait for an audit, by key, each with the time from which on it may be made.

    `audit` is called for one document at a time. A change that comes meanwhile makes it wait again.
    """

    def __init__(self, audit: Callable[[str], Any]) -> None:
        self._audit = audit
        self._due: dict[str, float] = {}
        self._busy = ""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()

    def add(self, key: str, delay: float = 0.0) -> None:
        """Lets a document wait for its audit, from now on for `delay` seconds. Other audits are begun before it until then."""
        self._due.pop(key, None)
        self._due[key] = asyncio.get_running_loop().time() + delay
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def drop(self, key: str) -> None:
        """Takes a document out again."""
        self._due.pop(key, None)

    def is_waiting(self, key: str) -> bool:
        """Whether an audit of a document is still to begin."""
        return key in self._due

    async def settled(self, key: str) -> None:
        """Waits until a document's audit is made; returns at once where none is due."""
        while key in self._due or key == self._busy:
            self._settled.clear()
            await self._settled.wait()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            if not self._due:
                self._settled.set()
                await self._changed.wait()
                continue
            key = min(self._due, key=lambda waiting: self._due[waiting])
            wait = self._due[key] - loop.time()
            if wait > 0:
                with suppress(TimeoutError, asyncio.TimeoutError):  # two classes until Python 3.11
                    await asyncio.wait_for(self._changed.wait(), wait)
                continue
            del self._due[key]
            self._busy = key
            try:
                await self._audit(key)
            finally:
                self._busy = ""
                self._settled.set()
