"""Whether the disk is as an audit saw it, by what stat says of files and folders.

A fingerprint is (time of the last change, of the last change of the inode, size, inode). While it is the same, so is the content.
It is only made of what was last changed some time before the audit began, since a file can be changed twice within one tick of a
file system's clock. A copy, a checkout or a `touch` changes fingerprints and not contents: then cache/entries.py asks the contents.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from ddp_audit.source.dependency_log import LINKED, UNREADABLE, DependencyLog

_TICK = 2_000_000_000  # nanoseconds: the coarsest clock is FAT's

Fingerprint: TypeAlias = "list[int] | None"
# Sort to path to [value, fingerprints by path]. No fingerprints: stat cannot be trusted for it.
Fingerprints: TypeAlias = "dict[str, dict[str, list[Any]]]"


def fingerprints(log: DependencyLog, began: int) -> Fingerprints:
    """Return what was looked at with its fingerprints. `began` is when the audit did, in nanoseconds since the epoch."""
    found: Fingerprints = {}
    for sort, path, value in log.rows("folders"):
        found.setdefault(sort, {})[path] = [value, _fingerprints(sort, path, value, began)]
    return found


def fingerprint_of(path: str) -> Fingerprint:
    """What stat tells of a path; None where nothing is there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def _fingerprints(sort: str, path: str, value: str, began: int) -> dict[str, Fingerprint]:
    if sort == "kinds" or value == UNREADABLE:
        return {}  # a kind is what stat tells
    names = [path]
    if sort == "documents":
        folder = path.removesuffix("*")
        names = [folder, *_links(folder), *_candidates(folder, path != folder)]
    elif value.startswith(LINKED):
        names += _links(path)
    guards = {name: fingerprint_of(name) for name in names}
    return guards if all(is_old(guard, began) for guard in guards.values()) else {}


def is_old(guard: Fingerprint, began: int) -> bool:
    """Whether what a fingerprint says was so for long enough before an audit began that it can be trusted."""
    return guard is not None and max(guard[:2]) <= began - _TICK


def _links(folder: str) -> list[str]:
    """The links in a folder: what they lead to may change while the folder does not. `fingerprint_of` is of what they lead to."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_symlink()]
    except OSError:
        return []


def _candidates(folder: str, python: bool) -> list[str]:
    from ddp_audit.source import documents

    return documents.candidates(folder, python)
