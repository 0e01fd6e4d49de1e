"""What the header of a rank's file says, and whether the process that writes it lives."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from ddp_audit.trace.plain import MOST_RANKS
from ddp_audit.trace.processes import process_lives
from ddp_audit.trace.worker import layout

_SILENT_AFTER = 60.0  # seconds without heartbeat before a process on another host counts as gone


PER_CHUNK = layout.CHUNK // layout.RECORD_SIZE
FIRST_SLOT = layout.HEADER.size // layout.RECORD_SIZE


class TraceError(Exception):
    """A trace that cannot be read. Its text is one line."""


class NoTrace(TraceError):
    """A folder in which no rank recorded anything."""


class Header(NamedTuple):
    """What the header of a file says. `newest` and `ring` are of a file that has become a ring."""

    version: int
    pid: int
    heartbeat: float
    start: float
    has_ended: bool  # the tracer has, before its process
    newest: int
    ring: int
    stands: int = 0  # the definition of the frames at which the main thread stood at the last heartbeat
    blocked: float = 0.0  # since when it stood at one place of torch.distributed then; 0.0 where it did not

    @property
    def first_chunk(self) -> int:
        """The first chunk behind the one that is never overwritten from which on all is there."""
        if not self.ring:
            return 1
        oldest = self.newest - self.ring + 2
        length = layout.segment_length(self.ring)
        return 1 + -(-(oldest - 1) // length) * length if self.newest > 2 * length else oldest

    def is_over(self, chunk: int) -> bool:
        """Whether a chunk was overwritten."""
        return bool(self.ring) and 0 < chunk <= self.newest - (self.ring - 1)

    @property
    def has_gap(self) -> bool:
        """Whether something between the first chunk and the others was overwritten."""
        return self.first_chunk > 1


def read_header(rank: int, head: bytes, strict: bool) -> Header | None:
    """What a file's header says; None for a file that is being made, or never was. Raises TraceError for another file."""
    if len(head) < layout.HEADER.size or head[:8] != layout.MAGIC:
        if head.strip(b"\0") or (strict and 0 < len(head) < layout.HEADER.size):
            what = "truncated" if layout.MAGIC.startswith(head[:8]) else "not a file of the ddp-audit tracer"
            raise TraceError(what)
        return None
    _, version, size, chunk, holds, pid, heartbeat, start = layout.HEADER.unpack(head)
    if version not in (layout.UNCHECKED, layout.VERSION) or size != layout.RECORD_SIZE or chunk != layout.CHUNK:
        raise TraceError(f"written in version {version} of the format; this tool reads version {layout.VERSION}")
    if holds != rank:
        raise TraceError(f"holds rank {holds}; it was renamed or damaged")
    ended = layout.F64.unpack_from(head, layout.END_OFFSET)[0] > 0
    newest, ring = layout.RING.unpack_from(head, layout.RING_OFFSET)
    if ring and (version == layout.UNCHECKED or ring < layout.FEWEST_CHUNKS or newest < ring):
        raise TraceError(f"damaged: a ring of {ring} chunks with chunk {newest}")
    stands, stood = layout.STANDS.unpack_from(head, layout.STANDS_OFFSET)
    return Header(version, pid, heartbeat, start, ended, newest, ring, stands, heartbeat - stood / 10 if stood else 0.0)


def is_gone(host: str | None, pid: int, ticks: int, heartbeat: float) -> bool:
    """Whether the process that writes a file is no more."""
    if host is not None and host != socket.gethostname():
        return time.time() - heartbeat > _SILENT_AFTER
    return not process_lives(pid, ticks)


def rank_of(name: str) -> int | None:
    digits = name[len("rank-") : -len(".ddptrace")]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 and int(digits) < MOST_RANKS else None


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
