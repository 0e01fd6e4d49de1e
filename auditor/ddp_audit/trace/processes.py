"""Processes of this host, as /proc tells of them: whether one lives, and the end of a whole tree of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_TERM_TIME = 3.0  # seconds from SIGTERM to SIGKILL


def process_lives(pid: int, ticks: int = 0) -> bool:
    """Whether a process of this host runs (a zombie does not). `ticks`, its start time, guards against a pid used again."""
    fields = _stat(pid)
    if not fields:
        if Path("/proc/self/stat").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True
    return fields[0] not in ("Z", "X") and (not ticks or int(fields[19]) == ticks)


def ticks_of(pid: int) -> int:
    """When a process began, in clock ticks since boot: with the pid it names one process. 0 where it cannot be known."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def cpu_of_tree(root: int) -> float:
    """Seconds of CPU time that a process and its descendants have used, those that live."""
    ticks = 0
    for pid, _ in _descendants(root):
        fields = _stat(pid)
        ticks += int(fields[11]) + int(fields[12]) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def is_runnable(pid: int) -> bool:
    """Whether a process's main thread runs, waits for a CPU, or waits for a disk."""
    return _stat(pid)[:1] in (["R"], ["D"])


def has_children(root: int) -> bool:
    """Whether a process has a descendant that runs."""
    return any(pid != root and process_lives(pid) for pid, _ in _descendants(root))


def kill_tree(root: int, also: Sequence[int] = ()) -> None:
    """Ends a process, its descendants and `also` with SIGTERM, and what is left after 3 seconds with SIGKILL.

    The workers get their signal at once: torchrun alone would wait 30 seconds for workers that hang. A torchrun of one node is
    ended by SIGKILL: it has nobody to tell, and at SIGTERM it prints a traceback of its own.
    """
    members = dict(_descendants(root))
    members.update({pid: ticks_of(pid) for pid in also if process_lives(pid)})
    for pid in [pid for pid in members if is_lone_agent(pid)]:
        _send(pid, signal.SIGKILL)
    for number, patience in ((signal.SIGTERM, _TERM_TIME), (signal.SIGKILL, 1.0)):
        for pid, ticks in members.items():
            if process_lives(pid, ticks):
                _send(pid, number)
        end = time.monotonic() + patience
        while time.monotonic() < end and any(process_lives(pid, ticks) for pid, ticks in members.items()):
            time.sleep(0.05)
            members.update(dict(_descendants(root)))


def _descendants(root: int) -> Iterator[tuple[int, int]]:
    """A process and all below it, with their start times."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    stack = [root]
    while stack:
        pid = stack.pop()
        yield pid, ticks_of(pid)
        stack.extend(children.get(pid, ()))


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def is_lone_agent(pid: int) -> bool:
    """Whether a process is a torchrun that starts the ranks of a single node."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    names = [Path(word).name for word in words[:3]]
    if "torchrun" not in names and "torch.distributed.run" not in names:
        return False
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--nnodes" and (value if equals else words[at + 1]) not in ("1", "1:1"):
            return False
    return True


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it ended meanwhile, or is not ours
        os.kill(pid, number)
