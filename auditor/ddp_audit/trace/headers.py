"""What the header of a rank's file says, and whether the process that writes it lives."""

from __future__ import annotations

import socket
import time

from ddp_audit.trace.plain import MOST_RANKS
from ddp_audit.trace.processes import process_lives
from ddp_audit.trace.worker import layout

_SILENT_AFTER = 60.0  # seconds without heartbeat before a process on another host counts as gone


class TraceError(Exception):
    """A trace that cannot be read. Its text is one line."""


class NoTrace(TraceError):
    """A folder in which no rank recorded anything."""


def read_header(path: object, rank: int, head: bytes, strict: bool) -> tuple[int, float, float] | None:
    """Pid, heartbeat and start from a file's header; None for a file that is being made, or never was. Raises TraceError for
    another file."""
    if len(head) < layout.HEADER.size or head[:8] != layout.MAGIC:
        if head.strip(b"\0") or (strict and 0 < len(head) < layout.HEADER.size):
            what = "truncated" if layout.MAGIC.startswith(head[:8]) else "not a file of the ddp-audit tracer"
            raise TraceError(f"{path}: {what}")
        return None
    _, version, size, chunk, holds, pid, heartbeat, start = layout.HEADER.unpack(head)
    if version != layout.VERSION or size != layout.RECORD_SIZE or chunk != layout.CHUNK:
        raise TraceError(f"{path}: written in version {version} of the format; this tool reads version {layout.VERSION}")
    if holds != rank:
        raise TraceError(f"{path}: holds rank {holds}; it was renamed or damaged")
    return pid, heartbeat, start


def has_tracer_ended(head: bytes) -> bool:
    """Whether the tracer of a file with this header has ended before its process."""
    return len(head) >= layout.HEADER.size and layout.F64.unpack_from(head, layout.END_OFFSET)[0] > 0


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
