"""The file of one rank: fixed-size records in a memory-mapped file, written without a lock.

A record is in the file before the collective is issued, and the kernel keeps the pages when the process is killed. Slots come
from one `itertools.count`, whose `next` is atomic under the GIL, so threads and signal handlers can write at any time.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import threading
import time
from typing import Any

from ddp_audit.trace.worker import layout

_PER_CHUNK = layout.CHUNK // layout.RECORD_SIZE
_KEPT_CHUNKS = 4  # older chunks are unmapped once no pending record refers to them

Place = tuple[mmap.mmap, int]  # a record: its chunk and the offset in it


class Ring:
    """Writer of one trace file. Raises OSError where the file cannot be made or grown, FileExistsError where it exists."""

    def __init__(self, path: str, rank: int, limit: int = 1 << 32) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._limit = limit
        self._growth = threading.Lock()
        self._chunks: dict[int, mmap.mmap] = {}
        self._grow(0)
        now = time.time()
        head = (layout.VERSION, layout.RECORD_SIZE, layout.CHUNK, rank, os.getpid(), now, now)
        self._first = self._chunks[0]
        # The magic comes last: a reader that finds it finds the rest.
        layout.HEADER.pack_into(self._first, 0, b"", *head)
        self._first[0:8] = layout.MAGIC
        self._slots = itertools.count(layout.HEADER.size // layout.RECORD_SIZE)
        self._ids = itertools.count(1)
        self._known: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        """Lets go of the file's descriptor; the mapped chunks stay writable."""
        os.close(self._descriptor)
        self._descriptor = -1

    def heartbeat(self, now: float) -> None:
        layout.F64.pack_into(self._first, layout.HEARTBEAT_OFFSET, now)

    def was_removed(self) -> bool:
        """Whether the file has no name any more, so that nobody will read what is written."""
        return os.fstat(self._descriptor).st_nlink == 0

    def end(self, now: float) -> None:
        """Notes that no more will be recorded, although the process lives."""
        layout.F64.pack_into(self._first, layout.END_OFFSET, now)

    def _grow(self, chunk: int) -> mmap.mmap:
        with self._growth:
            mapped = self._chunks.get(chunk)
            if mapped is None:
                offset = chunk * layout.CHUNK
                if offset + layout.CHUNK > self._limit:
                    raise OSError(f"{self.path} has reached its limit of {self._limit >> 20} MB ({layout.ENV_LIMIT})")
                # Space is taken now, so that a full disk is an exception here and not a SIGBUS in the middle of a write.
                try:
                    os.posix_fallocate(self._descriptor, offset, layout.CHUNK)
                except OSError:  # some file systems have made a part of it
                    os.ftruncate(self._descriptor, offset)
                    raise
                mapped = mmap.mmap(self._descriptor, layout.CHUNK, offset=offset)
                self._chunks[chunk] = mapped
                self._chunks.pop(chunk - _KEPT_CHUNKS, None)
            return mapped

    def _place(self) -> Place:
        chunk, within = divmod(next(self._slots), _PER_CHUNK)
        mapped = self._chunks.get(chunk)
        if mapped is None:
            mapped = self._grow(chunk)
        return mapped, within * layout.RECORD_SIZE

    def write(self, kind: int, thread: int, definition: int, index: int, number: int, now: float, value: float = 0.0) -> Place:
        """Writes a COLLECTIVE or EVENT record and returns its place."""
        chunk, within = divmod(next(self._slots), _PER_CHUNK)
        mapped = self._chunks.get(chunk)
        if mapped is None:
            mapped = self._grow(chunk)
        offset = within * 32
        layout.RECORD.pack_into(mapped, offset, 0, 0, thread, definition, index, number, now, value)
        mapped[offset] = kind
        return mapped, offset

    def write_value(self, thread: int, definition: int, number: int, now: float, value: int) -> Place:
        """Writes an EVENT record whose value is an unsigned 64-bit number."""
        mapped, offset = self._place()
        layout.VALUE_RECORD.pack_into(mapped, offset, 0, 0, thread, definition, 0, number, now, value)
        mapped[offset] = layout.EVENT
        return mapped, offset

    def write_check(self, count: int, digest: int) -> None:
        mapped, offset = self._place()
        layout.CHECK_RECORD.pack_into(mapped, offset, 0, 0, 0, 0, count, 0, digest, time.time())
        mapped[offset] = layout.CHECK

    def define(self, what: int, value: Any) -> int:
        """The id of a definition, which is written the first time."""
        text = json.dumps(value, separators=(",", ":"))
        known = self._known.get((what, text))
        if known is not None:
            return known
        data = text.encode()
        size = layout.FRAGMENT_TEXT
        parts = max(1, -(-len(data) // size))
        if parts > 0xFFFF:
            raise ValueError(f"a definition of {len(data)} bytes is too long for the trace")
        number = next(self._ids)
        for part in range(parts):
            piece = data[part * size : (part + 1) * size]
            mapped, offset = self._place()
            layout.FRAGMENT.pack_into(mapped, offset, 0, what, part, number, parts, len(piece), piece)
            mapped[offset] = layout.DEFINITION
        if len(self._known) > 1 << 16:  # a program whose sizes never repeat must not eat memory
            self._known.clear()
        self._known[what, text] = number
        return number


def mark(place: Place, state: int, now: float) -> None:
    """Notes in a record that its collective has returned (`layout.DONE`) or raised (`layout.RAISED`)."""
    mapped, offset = place
    layout.F64.pack_into(mapped, offset + layout.DONE_OFFSET, now)
    mapped[offset + layout.STATE_OFFSET] = state


def is_marked(place: Place) -> bool:
    mapped, offset = place
    return mapped[offset + layout.STATE_OFFSET] != layout.ISSUED


def set_number(place: Place, number: int) -> None:
    """Sets the number of an EVENT record, known only after the event (the buckets of a backward pass)."""
    mapped, offset = place
    layout.U32.pack_into(mapped, offset + layout.NUMBER_OFFSET, number)
