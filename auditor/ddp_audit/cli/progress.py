"""A line on the terminal that tells how far a long reading has come."""

from __future__ import annotations

import sys
import time

_QUIET = 0.5  # seconds in which nothing is shown
_BEAT = 0.1


class Progress:
    """Shown on standard error where that is a terminal, after half a second, and wiped out at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shows = sys.stderr.isatty()
        self._next = time.monotonic() + _QUIET
        self._shown = False

    def __call__(self, done: int, every: int) -> None:
        now = time.monotonic()
        if self._shows and now >= self._next:
            self._next = now + _BEAT
            self._shown = True
            sys.stderr.write(f"\r\x1b[K{self._what}: {done:,} of {every:,} ranks ({done * 100 // max(1, every)} %)"[:85])
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
