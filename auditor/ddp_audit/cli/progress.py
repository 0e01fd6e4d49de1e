"""A line on the terminal that tells how far something long has come."""

from __future__ import annotations

import os
import sys
import time
from types import FrameType, TracebackType

_QUIET = 0.5  # seconds in which nothing is shown
_QUIET_AUDIT = 1.0
_BEAT = 0.1


class _Line:
    """The last line of standard error, where that is a terminal that people look at."""

    def __init__(self) -> None:
        self.shows = sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        self._shown = False

    def write(self, text: str, tail: str = "") -> None:
        """Shows a text, and of `tail` as much of its end as fits next to it."""
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            width = 0
        width = (width or 80) - 1  # a terminal that knows no width says 0
        room = width - len(text)
        if len(tail) > room:
            tail = f"..{tail[len(tail) - room + 2 :]}" if room > 10 else ""
        self._put(f"\r\x1b[K{(text + tail)[:width]}")
        self._shown = True

    def wipe(self) -> None:
        if self._shown:
            self._put("\r\x1b[K")
            self._shown = False

    def _put(self, text: str) -> None:
        try:  # past Python's buffer: a signal's handler must not enter a buffer that is being written
            os.write(sys.stderr.fileno(), text.encode(errors="replace"))
        except ValueError:  # a stream without a descriptor
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal is gone
            self.shows = False


class Progress:
    """How many ranks' files have been read: shown after half a second, and wiped out at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._line = _Line()
        self._next = time.monotonic() + _QUIET

    def __call__(self, done: int, every: int) -> None:
        now = time.monotonic()
        if self._line.shows and now >= self._next:
            self._next = now + _BEAT
            self._line.write(f"{self._what}: {done:,} of {every:,} ranks ({done * 100 // max(1, every)} %)")

    def end(self) -> None:
        self._line.wipe()


class Auditing:
    """How far an audit has come, shown when it takes longer than a second; wiped out when the block ends.

    A timer shows it, since a single script can take long. Without one (not the main thread, no such signal) nothing is shown.
    """

    def __init__(self) -> None:
        self._line = _Line()
        self._text = self._at = ""
        self._before: object = None

    def __call__(self, doing: str, done: int, every: int, at: str) -> None:
        self._text, self._at = f"{doing} {done:,} of {every:,}: ", at

    def __enter__(self) -> Auditing:
        if self._line.shows:
            import signal  # which a run that shows nothing does not need

            if not hasattr(signal, "setitimer"):
                return self
            try:
                self._before = signal.signal(signal.SIGALRM, self._show)
            except ValueError:  # only the main thread gets signals
                return self
            signal.setitimer(signal.ITIMER_REAL, _QUIET_AUDIT, _BEAT)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            import signal

            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)  # type: ignore[arg-type]
            self._before = None
            self._line.wipe()

    def _show(self, number: int, frame: FrameType | None) -> None:
        if self._text and self._line.shows:
            self._line.write(self._text, self._at)
