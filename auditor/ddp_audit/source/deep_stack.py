"""Room for source that is nested deeper than Python's usual limit of calls: a thousand `elif`, a sum of thousands of terms.

Python runs such programs, since its compiler has a limit of its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from ddp_audit import budget

_Result = TypeVar("_Result")
_DEPTH = 30_000  # calls inside each other; Python itself gives up on parsing what is nested deeper than about that
_STACK = 512 * 1024 * 1024  # bytes of address space; what is not used takes no memory


def run_with_deep_stack(call: Callable[[], _Result]) -> _Result:
    """What a call returns; where it runs out of the usual depth it is made once more, in a thread with a deep stack.

    Raises what the call raises: RecursionError where that is not deep enough either.
    """
    try:
        return call()
    except RecursionError:
        return _deep(call)


def _deep(call: Callable[[], _Result]) -> _Result:
    results: list[_Result] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with budget.in_this_thread():
                results.append(call())
        except BaseException as error:
            raised.append(error)

    usual_depth, usual_stack = sys.getrecursionlimit(), threading.stack_size()
    try:
        threading.stack_size(_STACK)
        sys.setrecursionlimit(max(_DEPTH, usual_depth))
        thread = threading.Thread(target=run, daemon=True)
        with budget.room_for(_STACK):
            thread.start()
            threading.stack_size(usual_stack)  # of the threads that the call starts
            thread.join()
    except RuntimeError:  # no room for the stack
        raise RecursionError("nested too deeply") from None
    finally:
        sys.setrecursionlimit(usual_depth)
        threading.stack_size(usual_stack)
    if raised:
        raise raised[0]
    if not results:  # no room even to note what was raised
        raise MemoryError
    return results[0]
