"""Reads where a rank stands whose interpreter is locked or whose tracer has ended, or where a fatal signal ended it: the stacks
that C code of its process has written (`worker/locked.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ddp_audit.events import Site
from ddp_audit.trace.plain import plain_file
from ddp_audit.trace.worker import layout

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)\b.*:$")
_CURRENT = re.compile(r"^Current thread 0x([0-9a-f]+)\b", re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: ([ -~]{1,80})$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_NOT_THE_USERS = re.compile(r"^<|/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|/ddp_audit/trace/")
_MOST_BYTES = 1 << 18


class Stood(NamedTuple):
    """The user's line at which a rank stood, where it is known, and what faulthandler calls the fatal signal that came there."""

    site: Site | None
    fatal: str = ""


def stands_locked(trace: Path, rank: int, start: Mapping[str, Any] | None, since: float) -> Stood | None:
    """Where a rank stands, where its stacks were written later than `since`, its last event: its main thread, or the thread in
    which a fatal signal came.

    `start` is the detail of the rank's START event: it names the main thread and the folder that paths are relative to.
    """
    path = trace.with_name(layout.STACKS_PATTERN.format(rank))
    try:
        found = path.stat()
        if not found.st_size or start is None or trace.suffix != ".ddptrace":  # the file of an earlier attempt was overwritten
            return None
        with plain_file(path) as file:
            text = file.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    thread, cwd = int(start.get("thread", 0)), str(start.get("cwd", ""))
    fatal = next(reversed(list(_FATAL.finditer(text))), None)
    if fatal is None:
        site = site_in(text, thread, cwd) if found.st_mtime >= since else None
        return None if site is None else Stood(site)
    text = text[fatal.start() :]
    current = _CURRENT.search(text)
    site = None if current is None else site_in(text, int(current[1], 16), cwd)
    return Stood(site or site_in(text, thread, cwd), fatal[1])


def stands_since(trace: Path, rank: int, thread: int) -> tuple[float, bool]:
    """When the main thread of a rank whose tracer has ended came to where it stands, 0.0 where that is not known, and whether that
    is in a call of torch.distributed or in a backward pass."""
    path = trace.with_name(layout.STACKS_PATTERN.format(rank))
    try:
        found = path.stat()
        with plain_file(path) as file:
            text = file.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return 0.0, False
    is_his = waits = False
    for line in text.splitlines():
        section = _THREAD.match(line)
        if section:
            is_his = int(section[1], 16) == thread
        elif is_his and (frame := _FRAME.match(line)):
            waits = waits or "/torch/distributed/" in frame[1] or "/torch/autograd/" in frame[1]
    return found.st_mtime, waits


def site_in(text: str, thread: int, cwd: str) -> Site | None:
    """The innermost frame of the user's in the section of a thread, in a text of faulthandler's; later texts count first.

    >>> site_in('Thread 0x0000000000000007 (most recent call first):\\n  File "/w/a.py", line 3 in f\\n', 7, "/w")
    Site(path='a.py', line=3, function='f')
    """
    site: Site | None = None
    is_his = False
    for line in text.splitlines():
        section = _THREAD.match(line)
        if section:
            is_his = int(section[1], 16) == thread
            site = None if is_his else site
            continue
        frame = _FRAME.match(line) if is_his and site is None else None
        if frame and not _NOT_THE_USERS.search(frame[1]):
            path, folder = (Path(cwd) / frame[1]).resolve(), Path(cwd).resolve()
            shown = path.relative_to(folder) if cwd and path.is_relative_to(folder) else path
            site = Site(shown.as_posix(), int(frame[2]), frame[3])
    return site
