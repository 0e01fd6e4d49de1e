"""The standard error of a traced command: kept in a file of the trace folder, and shown while it grows.

The command writes to the file itself, not to a pipe, so that it lives on unharmed when this process is killed. Room in the file is
taken in advance, so that the command's writes succeed on a full disk too; there the oldest text gives way once it has been shown.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from pathlib import Path
from types import TracebackType

_BEAT = 0.05
_BLOCK = 1 << 16
_ROOM = 1 << 20  # bytes that are taken in advance
_PAGE = 1 << 12
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h


class KeptErrors:
    """A context in which `descriptor` is the file for the command, and what comes to it is copied to standard error."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._taken = 0  # room is taken up to here
        self._given = 0  # text was given up to here
        self._take_room()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddp-audit-stderr", daemon=True)

    def __enter__(self) -> KeptErrors:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Copies what is left. Processes that outlive the command may write on; that stays in the file."""
        self._ends.set()
        self._thread.join()
        os.ftruncate(self.descriptor, os.fstat(self.descriptor).st_size)  # gives back the room
        os.close(self._reader)
        os.close(self.descriptor)

    def _run(self) -> None:
        while not self._ends.wait(_BEAT):
            self._copy()
            self._take_room()
        self._copy()

    def _take_room(self) -> None:
        """Takes room for what comes next. Does nothing on file systems that cannot."""
        size = os.fstat(self.descriptor).st_size
        if self._taken - size >= _ROOM // 2:
            return
        if _allocate(self.descriptor, _KEEP_SIZE, size, _ROOM) == 0:
            self._taken = size + _ROOM
        elif ctypes.get_errno() == errno.ENOSPC:
            shown = os.lseek(self._reader, 0, os.SEEK_CUR) // _PAGE * _PAGE
            if shown > self._given and _allocate(self.descriptor, _KEEP_SIZE | _PUNCH_HOLE, self._given, shown - self._given) == 0:
                self._given = shown
                if _allocate(self.descriptor, _KEEP_SIZE, size, _ROOM // 2) == 0:
                    self._taken = size + _ROOM // 2

    def _copy(self) -> None:
        while data := os.read(self._reader, _BLOCK):
            try:
                while data:
                    data = data[os.write(2, data) :]
            except OSError:  # nobody reads our standard error any more; the file has it all
                pass


def _allocate(descriptor: int, mode: int, offset: int, length: int) -> int:
    """fallocate(2), which Python has without its mode. 0 where it has worked."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if function is None:
        return -1
    return int(function(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))
