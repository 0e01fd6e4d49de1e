"""Generator functions that are asked for one element at a time: each runs in a thread of its own, which waits between two.

A `for` over the call of a generator function needs none of this: its body is called at each `yield`. With `next`, zip and the like
the consumer runs on while the generator stands still, and only a second stack can hold the place. Never do both run at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls
from ddp_audit.explore.exact.values import Cut, Generating, Native, Unknown, error
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

MOST = 64  # that stand still at once
END: Any = object()


class Running:
    """A generator under way."""

    def __init__(self, it: Interpreter, made: Generating) -> None:
        self.at = 0  # events before it was left standing
        self.drawn = 0  # elements that it was asked for
        self.place = place_of(made.function.scope.source.path, made.function.node.lineno)
        self._it = it
        self._made = made
        self._resumed, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._value: Any = END
        self._raised: BaseException | None = None
        self._is_over = self._is_closed = self._is_running = False
        self._stacks: tuple[list[Any], ...] | None = None
        self._thread = threading.Thread(target=self._work, name="generator", daemon=True)

    def next(self) -> Any:
        """The next element, END without one. Raises what the function raises, and Cut where too many generators wait."""
        self.drawn += 1
        if self._is_over:
            return END
        if self._is_running:
            raise error("ValueError", "generator already executing")
        outside, grad = self._exchange(self._stacks), self._it.grad
        mode = self._made.function.grad  # of a decorator
        self._it.grad = grad if mode is None else mode
        if not self._thread.is_alive():
            self._start()
        self._is_running = True
        self._resumed.release()
        self._stopped.acquire()
        self._is_running = False
        self._stacks = self._exchange(outside)
        self.at = len(self._it.events)
        self._it.grad = grad
        return self._end() if self._has_ended() else self._value

    def _has_ended(self) -> bool:
        return self._is_over

    def _end(self) -> Any:
        self._thread.join()
        self._it.generators.remove(self)
        if self._raised is not None:
            raise self._raised
        return END

    def close(self) -> None:
        """Ends it where it stands; its `finally` blocks run."""
        self._is_closed = True
        if not self._is_over and self._thread.is_alive():
            self._resumed.release()
            self._stopped.acquire()
            self._thread.join()
        self._is_over = True

    def _start(self) -> None:
        if len(self._it.generators) >= MOST:
            self._is_over = True
            raise Cut(f"more than {MOST} generators wait to be asked")
        try:
            self._thread.start()
        except RuntimeError:  # no room for its stack
            self._is_over = True
            raise Cut("more generators wait to be asked than there is memory for") from None
        self._it.generators.append(self)

    def _work(self) -> None:
        self._resumed.acquire()
        try:
            if not self._is_closed:
                calls.generate(self._it, self._made, self._yielded)
        except BaseException as error:  # the consumer's thread raises it
            self._raised = error
        self._is_over = True
        self._stopped.release()

    def _yielded(self, value: Any) -> bool:
        self._value = value
        self._stopped.release()
        self._resumed.acquire()
        return not self._is_closed

    def _exchange(self, stacks: tuple[list[Any], ...] | None) -> tuple[list[Any], ...]:
        """What the interpreter is in the middle of, with `stacks` put in its place; None leaves it as it is."""
        it = self._it
        lists: tuple[list[Any], ...] = (it.frames, it.guards, it.windows, it.handling)
        found = tuple(list(own) for own in lists)
        for own, new in zip(lists, stacks or (), strict=False):
            own[:] = new
        return found


def elements(it: Interpreter, made: Generating) -> Iterator[Any]:
    """What is left of a generator, one element at a time."""
    running = running_of(it, made)
    while (element := running.next()) is not END:
        yield element


def running_of(it: Interpreter, made: Generating) -> Running:
    """The state of a generator, which begins with the first element that is asked for."""
    if made.running is None:
        made.running = Running(it, made)
    found: Running = made.running
    return found


def method(it: Interpreter, made: Generating, name: str) -> Any:
    """`send`, `close` and `__next__` of a generator."""

    def sent(value: Any) -> Any:
        made.sent = value
        element = running_of(it, made).next()
        if element is END:
            raise error("StopIteration")
        return element

    def close() -> None:
        running = running_of(it, made)
        running.close()
        if running in it.generators:
            it.generators.remove(running)

    known: dict[str, Callable[..., Any]] = {"send": sent, "__next__": lambda: sent(None), "close": close}
    return Native(known[name], name) if name in known else Unknown(name)


def close_all(it: Interpreter) -> None:
    """Ends every generator that was left standing.

    A real one ends when nobody holds it any longer, which is not followed: where it sends at its end, nothing is certain from the
    last element on that it gave.
    """
    end, it.initialized = len(it.events), True  # it would have sent before the group was destroyed
    for running in list(it.generators):
        running.close()
        sends = len(it.events) > end
        later = it.events[running.at : end]
        del it.events[running.at :]
        if sends:
            it.bound(f"the generator of {running.place} sends at its end, and when that comes is not followed")
        it.events += later
    it.generators.clear()


__all__ = ["END", "Running", "close_all", "elements", "method", "running_of"]
