"""Asking all ranks where they stand, without every rank looking at one file server.

The question is a file in the trace folder, which the ranks of a job of many hosts share over the network. One rank of each host,
its relay, looks at it once a second and passes a change on through a folder in the host's memory; the others look only there. A
rank that wants to ask tells its relay, which asks once for its whole host, and not at all where another host has just asked.
The relay is the rank that holds a lock, so another rank takes over when it ends; while one is stuck, the ranks look for themselves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
import zlib

LOOK_EVERY = 1.0  # seconds from one look at the shared file to the next
_COVERED = 5.0  # seconds for which another host's question stands for this one's
_STUCK = 5.0  # seconds without a sign of life after which a relay is passed over
_OLD = 3600.0  # seconds without a sign of life after which a folder is nobody's


class Files:
    """The shared file, and the host's own folder. Raises OSError where the host has no place for it."""

    def __init__(self, shared: str, run: str) -> None:
        self._shared = shared
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        self._folder = os.path.join(base, f"ddp-audit-{os.getuid()}-{zlib.crc32(f'{shared} {run}'.encode()):08x}")
        self._lock = -1
        self._make()
        for name in os.listdir(base):  # of runs that were killed
            if name.startswith(f"ddp-audit-{os.getuid()}-"):
                _remove_old(os.path.join(base, name))

    def _make(self) -> None:
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            found = os.lstat(self._folder)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise

    def shared_time(self) -> int:
        """When the question was asked last; 0 for never."""
        try:
            return os.stat(self._shared).st_mtime_ns
        except OSError:
            return 0

    def ask_all(self, text: str) -> None:
        with open(self._shared, "a", encoding="utf-8") as file:
            file.write(text)

    def local_time(self) -> int:
        """What the relay passed on last."""
        try:
            with open(os.path.join(self._folder, "request"), encoding="ascii") as file:
                return int(file.read() or 0)
        except (OSError, ValueError):
            return 0

    def pass_on(self, value: int) -> None:
        path = os.path.join(self._folder, "request")
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(value))
        os.replace(f"{path}.new", path)

    def ask_relay(self) -> None:
        with open(os.path.join(self._folder, "asks"), "a", encoding="ascii") as file:
            file.write("?")

    def asks(self) -> int:
        """How often the relay was asked."""
        try:
            return os.stat(os.path.join(self._folder, "asks")).st_size
        except OSError:
            return 0

    def take_over(self) -> bool:
        """Whether this rank is its host's relay, from now on if need be."""
        if self._lock >= 0:
            return True
        self._make()
        descriptor = os.open(os.path.join(self._folder, "relay"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def show_life(self, now: float) -> None:
        os.utime(self._lock, (now, now))

    def last_life(self) -> float:
        """When the relay last showed that it lives."""
        try:
            return os.stat(os.path.join(self._folder, "relay")).st_mtime
        except OSError:
            return 0.0

    def close(self) -> None:
        """The relay takes the folder with it; who is left makes it again."""
        if self._lock >= 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_old(folder: str) -> None:
    try:
        if time.time() - os.stat(os.path.join(folder, "relay")).st_mtime > _OLD:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # it is being made, or taken away
        pass


class Node:
    """One rank's part in it. `latest` is called often, ten times a second, and looks at the shared file as seldom as can be."""

    def __init__(self, files: Files, rank: int) -> None:
        self._files = files
        self._rank = rank
        self._known = files.shared_time()
        self._looked = 0.0
        self._changed = 0.0  # when the question was last seen to be new
        self._asks = files.asks()
        self._is_relay = False

    def latest(self, now: float) -> int:
        """When all ranks were last asked where they stand, as far as this host knows."""
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._is_relay = self._files.take_over()
            if self._is_relay:
                self._relay(now)
            elif now - self._files.last_life() > _STUCK:
                self._see(self._files.shared_time(), now)
        if not self._is_relay:
            self._see(self._files.local_time(), now)
        return self._known

    def _see(self, value: int, now: float) -> bool:
        if value <= self._known:
            return False
        self._known, self._changed = value, now
        return True

    def _relay(self, now: float) -> None:
        self._files.show_life(now)
        if self._see(self._files.shared_time(), now):
            self._files.pass_on(self._known)
        asks = self._files.asks()
        if asks > self._asks:
            self._asks = asks
            self._ask_all(now)

    def ask(self, now: float) -> None:
        """Asks all ranks, unless that has just been done."""
        if self._is_relay or now - self._files.last_life() > _STUCK:
            self._ask_all(now)
        else:
            self._files.ask_relay()

    def _ask_all(self, now: float) -> None:
        if not self._see(self._files.shared_time(), now) and now - self._changed > _COVERED:
            self._files.ask_all(f"rank {self._rank} waits\n")
            self._see(self._files.shared_time(), now)
        if self._is_relay:
            self._files.pass_on(self._known)

    def close(self) -> None:
        self._files.close()
