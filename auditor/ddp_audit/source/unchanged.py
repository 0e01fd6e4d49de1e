"""Whether the disk is as an audit saw it: by what stat tells of files and folders, and by their contents where that differs.

A guard is (time of the last change, of the last change of the inode, size, inode). While it is the same, so is the content; it is
only made of what was last changed some time before the audit began, since a file can be changed twice within one tick of a file
system's clock. A copy, a checkout or a `touch` changes guards and not contents: then contents are hashed, and the guards made anew.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from ddp_audit.source import seen
from ddp_audit.source.seen import LINKED, UNREADABLE, Seen

_TICK = 2_000_000_000  # nanoseconds: the coarsest clock is FAT's

Guard: TypeAlias = "list[int] | None"
# Sort to path to [value, guards by path]. No guards: the value is asked for each time.
Held: TypeAlias = "dict[str, dict[str, list[Any]]]"


def held(noted: Seen, began: int) -> Held:
    """What was looked at with its guards, for `changes`. `began` is when the audit did, in nanoseconds since the epoch."""
    found: Held = {}
    for sort, path, value in noted.rows("folders"):
        found.setdefault(sort, {})[path] = [value, _guards(sort, path, value, began)]
    return found


def holds(kept: Held, began: int) -> tuple[bool, bool]:
    """Whether the disk is as it was, and whether `kept` has guards now that it had not: it is worth keeping again then."""
    fresher = False
    for sort, rows in kept.items():
        for path, row in rows.items():
            value, guards = row
            if guards and all(guard_of(name) == guard for name, guard in guards.items()):
                continue
            if _now(sort, path) != value:
                return False, False
            row[1] = _guards(sort, path, value, began)
            fresher = fresher or bool(row[1])
    return True, fresher


def guard_of(path: str) -> Guard:
    """What stat tells of a path; None where nothing is there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def _guards(sort: str, path: str, value: str, began: int) -> dict[str, Guard]:
    if sort == "kinds" or value == UNREADABLE or value.startswith(LINKED):
        return {}  # a kind is what stat tells
    names = [path]
    if sort == "documents":
        folder = path.removesuffix("*")
        if _has_links(folder):
            return {}
        names = [folder, *_candidates(folder, path != folder)]
    guards = {name: guard_of(name) for name in names}
    trusted = all(guard is not None and max(guard[:2]) <= began - _TICK for guard in guards.values())
    return guards if trusted else {}


def _has_links(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_symlink() for entry in entries)
    except OSError:
        return False


def _candidates(folder: str, python: bool) -> list[str]:
    from ddp_audit.source import documents

    return documents.candidates(folder, python)


def _now(sort: str, path: str) -> str:
    if sort == "files":
        return seen.digest_of(path)
    if sort == "kinds":
        return seen.kind_of(path)
    if sort == "folders":
        return seen.names_in(path)
    return seen.documents_digest(path) if os.path.isdir(path.removesuffix("*")) else ""
