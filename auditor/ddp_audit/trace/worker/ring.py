"""The file of one rank: fixed-size records in a memory-mapped file, written without a lock.

A record is in the file before the collective is issued, and the kernel keeps the pages when the process is killed. Slots come
from one `itertools.count`, whose `next` is atomic under the GIL, so threads and signal handlers can write at any time.

At its limit, or on a full disk, the file goes on as a ring (`layout`): the newest records are always there.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import threading
import time
import weakref
from struct import Struct
from typing import Any

from ddp_audit.trace.worker import layout

_PER_CHUNK = layout.CHUNK // layout.RECORD_SIZE
_KEPT_CHUNKS = 4  # older chunks are unmapped once no pending record refers to them
_WORDS = Struct("<II")

Place = tuple[mmap.mmap, int]  # a record: its chunk and the offset in it


class Ring:
    """Writer of one trace file of at most `limit` bytes. Raises OSError where it cannot be made or has no room for the smallest
    ring, FileExistsError where it exists."""

    def __init__(self, path: str, rank: int, limit: int = layout.DEFAULT_LIMIT_MB << 20) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._most = max(layout.FEWEST_CHUNKS, limit // layout.CHUNK)  # chunks that the file may have
        self._ring = 0  # chunks that it has, once it is a ring
        self._newest = -1
        self._growth = threading.Lock()
        self._chunks: dict[int, mmap.mmap] = {}
        self._mapped: dict[int, weakref.ref[mmap.mmap]] = {}  # those that may be in use still
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
        self._lasting: dict[tuple[int, str], int] = {}  # of those known the ones in chunk 0

    def close(self) -> None:
        """Lets go of the file's descriptor; the mapped chunks stay writable."""
        os.close(self._descriptor)
        self._descriptor = -1

    def heartbeat(self, now: float) -> None:
        layout.F64.pack_into(self._first, layout.HEARTBEAT_OFFSET, now)

    def stand(self, definition: int, seconds: float) -> None:
        """Notes at which frames the main thread stands, and for how long at one place of torch.distributed."""
        layout.STANDS.pack_into(self._first, layout.STANDS_OFFSET, definition, min(int(seconds * 10), 0xFFFFFFFF))

    def was_removed(self) -> bool:
        """Whether the file has no name any more, so that nobody will read what is written."""
        return os.fstat(self._descriptor).st_nlink == 0

    def end(self, now: float) -> None:
        """Notes that no more will be recorded, although the process lives."""
        layout.F64.pack_into(self._first, layout.END_OFFSET, now)

    @property
    def segment(self) -> int:
        """The number of the part of the ring that is written; 0 in the first chunk."""
        return 0 if self._newest < 1 else 1 + (self._newest - 1) // layout.segment_length(self._ring or self._most)

    def forget_definitions(self) -> None:
        """Has all definitions written again where they are asked for, but for those that are never overwritten."""
        self._known = dict(self._lasting)

    def position(self, chunk: int) -> int:
        """Where in the file a chunk begins, in bytes; -1 where it was overwritten."""
        if self._ring and 0 < chunk <= self._newest - (self._ring - 1):
            return -1
        return layout.place_of_chunk(chunk, self._ring) * layout.CHUNK

    def _grow(self, chunk: int) -> mmap.mmap:
        with self._growth:
            while self._newest < chunk:
                self._take(self._newest + 1)
            mapped = self._chunks.get(chunk)
            if mapped is None:
                position = self.position(chunk)
                if position < 0:
                    raise OSError("a record came too late for its place in the trace")
                mapped = mmap.mmap(self._descriptor, layout.CHUNK, offset=position)
                self._chunks[chunk] = mapped
                self._chunks.pop(chunk - _KEPT_CHUNKS, None)
                self._mapped[chunk] = weakref.ref(mapped)
            return mapped

    def _take(self, chunk: int) -> None:
        """Makes room for the next chunk: behind the others, or where the oldest is."""
        if not self._ring and chunk < self._most:
            # Space is taken now, so that a full disk is an exception here and not a SIGBUS in the middle of a write.
            try:
                os.posix_fallocate(self._descriptor, chunk * layout.CHUNK, layout.CHUNK)
                self._newest = chunk
                return
            except OSError:  # some file systems have made a part of it
                os.ftruncate(self._descriptor, chunk * layout.CHUNK)
                if chunk < layout.FEWEST_CHUNKS:
                    raise
        self._ring = self._ring or chunk
        old = self._mapped.pop(chunk - (self._ring - 1), None)
        old_map = None if old is None else old()
        if old_map is not None:
            self._chunks.pop(chunk - (self._ring - 1), None)
            old_map.close()  # a record in it that was pending is not marked any more: another one takes its place
        with mmap.mmap(self._descriptor, layout.CHUNK, offset=layout.place_of_chunk(chunk, self._ring) * layout.CHUNK) as place:
            place[:] = bytes(layout.CHUNK)
        self._newest = chunk
        layout.RING.pack_into(self._first, layout.RING_OFFSET, chunk, self._ring)

    def _place(self) -> tuple[Place, int]:
        """The place of the next record, and its slot."""
        slot = next(self._slots)
        chunk, within = divmod(slot, _PER_CHUNK)
        mapped = self._chunks.get(chunk)
        if mapped is None:
            mapped = self._grow(chunk)
        return (mapped, within * layout.RECORD_SIZE), slot

    def write(self, kind: int, thread: int, definition: int, index: int, now: float, value: float = 0.0) -> Place:
        """Writes a COLLECTIVE record and returns its place."""
        slot = next(self._slots)
        chunk, within = divmod(slot, _PER_CHUNK)
        mapped = self._chunks.get(chunk)
        if mapped is None:
            mapped = self._grow(chunk)
        offset = within * 32
        # The last term is `layout.slot_word`, written out: a call of it would cost as much as all the rest of the check.
        low, high = _WORDS.unpack(layout.F64.pack(now))
        check = kind ^ thread << 16 ^ definition ^ index ^ low ^ high ^ ((slot * 0x9E3779B1 + 0x7F4A7C15) & 0xFFFFFFFF)
        layout.RECORD.pack_into(mapped, offset, 0, 0, thread, definition, index, check, now, value)
        mapped[offset] = kind
        return mapped, offset

    def write_value(self, thread: int, definition: int, number: int, now: float, value: int, state: int = layout.ISSUED) -> Place:
        """Writes an EVENT record whose value is an unsigned 64-bit number."""
        (mapped, offset), slot = self._place()
        low, high = _WORDS.unpack(layout.F64.pack(now))
        check = layout.EVENT ^ thread << 16 ^ definition ^ low ^ high ^ layout.slot_word(slot)
        if state == layout.ISSUED:
            check ^= number ^ (value & 0xFFFFFFFF) ^ value >> 32
        layout.VALUE_RECORD.pack_into(mapped, offset, 0, state, thread, definition, check, number, now, value)
        mapped[offset] = layout.EVENT
        return mapped, offset

    def write_check(self, count: int, digest: int) -> None:
        (mapped, offset), slot = self._place()
        now = time.time()
        low, high = _WORDS.unpack(layout.F64.pack(now))
        check = layout.CHECK ^ count ^ (digest & 0xFFFFFFFF) ^ digest >> 32 ^ low ^ high ^ layout.slot_word(slot)
        layout.CHECK_RECORD.pack_into(mapped, offset, 0, 0, 0, 0, count, check, digest, now)
        mapped[offset] = layout.CHECK

    def define(self, what: int, value: Any) -> int:
        """The id of a definition, which is written the first time."""
        text = json.dumps(value, separators=(",", ":"))
        known = self._known.get((what, text))
        if known is not None:
            return known
        data = text.encode()
        size = layout.FRAGMENT_TEXT
        parts = -(-(len(data) + layout.U32.size) // size)
        if parts > 0xFFFF:
            raise ValueError(f"a definition of {len(data)} bytes is too long for the trace")
        number = next(self._ids)
        data += layout.definition_check(what, number, data)
        slot = 0
        for part in range(parts):
            piece = data[part * size : (part + 1) * size]
            (mapped, offset), slot = self._place()
            layout.FRAGMENT.pack_into(mapped, offset, 0, what, part, number, parts, len(piece), piece)
            mapped[offset] = layout.DEFINITION
        if len(self._known) > 1 << 16:  # a program whose sizes never repeat must not eat memory
            self.forget_definitions()
        self._known[what, text] = number
        if slot < _PER_CHUNK:
            self._lasting[what, text] = number
        return number


def mark(place: Place, state: int, now: float) -> None:
    """Notes in a record that its collective has returned (`layout.DONE`) or raised (`layout.RAISED`)."""
    mapped, offset = place
    try:
        layout.F64.pack_into(mapped, offset + layout.DONE_OFFSET, now)
        mapped[offset + layout.STATE_OFFSET] = state
    except (ValueError, TypeError):  # the ring has come round: another record is there
        return


def is_marked(place: Place) -> bool:
    """Whether the collective of a record has returned or raised, or its record is gone."""
    mapped, offset = place
    try:
        return mapped[offset + layout.STATE_OFFSET] != layout.ISSUED
    except (ValueError, TypeError):
        return True


def set_number(place: Place, number: int) -> None:
    """Sets the number of an EVENT record, known only after the event (the buckets of a backward pass)."""
    mapped, offset = place
    try:
        layout.U32.pack_into(mapped, offset + layout.NUMBER_OFFSET, number)
    except (ValueError, TypeError):
        return
