"""What an audit looked at on the disk, for its cache: contents that were read, paths asked about, folders searched for modules.

The functions here stand where the audit reads or asks. They note something only inside `noting()`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ddp_audit.source import documents

UNREADABLE = "unreadable"


@dataclass(slots=True)
class Seen:
    """Everything that the outcome of an audit can depend on besides its options. All paths are absolute.

    `files` holds a hash of each content that was read, `kinds` what stood at a path that was asked about, `folders` a hash of
    the names in a folder that an import could mean.
    """

    files: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)  # a hash of the documents in a folder; with Python files after a `*`
    absent: set[str] = field(default_factory=set)  # folders that are not there: the nearest one above them is in `folders`

    def add(self, other: Seen) -> None:
        """Takes over what another process looked at."""
        self.files |= other.files
        self.kinds |= other.kinds
        self.folders |= other.folders
        self.documents |= other.documents

    def holds(self) -> bool:
        """Whether the disk is as it was."""
        return (
            all(kind_of(path) == kind for path, kind in self.kinds.items())
            and all(names_in(path) == names for path, names in self.folders.items())
            and all(digest_of(path) == digest for path, digest in self.files.items())
            and all(documents.digest(_documents_of(key)) == digest for key, digest in self.documents.items())
        )


_seen: Seen | None = None


@contextmanager
def noting() -> Iterator[Seen]:
    """Notes what is looked at inside the block."""
    global _seen
    before = _seen
    _seen = Seen()
    try:
        yield _seen
    finally:
        _seen = before


def is_noting() -> bool:
    """Whether something is being noted."""
    return _seen is not None


def add(other: Seen) -> None:
    """Takes over what another process noted, where something is being noted here."""
    if _seen is not None:
        _seen.add(other)


def content(path: str | os.PathLike[str], data: bytes | None = None) -> None:
    """Notes that a file was read: `data`, or what it holds now."""
    if _seen is not None:
        absolute = os.path.abspath(path)
        _seen.files[absolute] = digest_of(absolute) if data is None else _digest(data)


def exists(path: str | os.PathLike[str]) -> bool:
    """os.path.exists, noted."""
    return _kind(path) != ""


def is_file(path: str | os.PathLike[str]) -> bool:
    """os.path.isfile, noted."""
    return _kind(path) == "file"


def folder(path: str) -> None:
    """Notes that a module was looked for in a folder, which need not be there."""
    if _seen is None:
        return
    while path not in _seen.folders and path not in _seen.absent:
        names = names_in(path)
        if names or os.path.dirname(path) == path:
            _seen.folders[path] = names
            return
        _seen.absent.add(path)
        path = os.path.dirname(path)


def documents_in(folder: str, python: bool = False) -> list[tuple[str, bytes]]:
    """The documents of a folder (source/documents.py), noted."""
    found = documents.documents_in(folder, python)
    if _seen is not None:
        _seen.documents[os.path.abspath(folder) + "*" * python] = documents.digest(found)
    return found


def _documents_of(key: str) -> list[tuple[str, bytes]]:
    return documents.documents_in(key.removesuffix("*"), key.endswith("*"))


def _kind(path: str | os.PathLike[str]) -> str:
    if _seen is None:
        return kind_of(path)
    absolute = os.path.abspath(path)
    if absolute not in _seen.kinds:
        _seen.kinds[absolute] = kind_of(absolute)
    return _seen.kinds[absolute]


def kind_of(path: str | os.PathLike[str]) -> str:
    """What stands at a path: file, folder, other, or nothing (empty)."""
    if os.path.isfile(path):
        return "file"
    if os.path.isdir(path):
        return "folder"
    return "other" if os.path.exists(path) else ""


def names_in(path: str) -> str:
    """A hash of the names in a folder that can be modules or packages; empty where there is no such folder."""
    try:
        with os.scandir(path) as entries:
            names = sorted(filter(None, map(_name, entries)))
    except OSError:
        return ""
    return _digest("\0".join(names).encode(errors="surrogateescape"))


def digest_of(path: str) -> str:
    """A hash of what a file holds now."""
    try:
        with open(path, "rb") as stream:
            return _digest(stream.read())
    except OSError:
        return UNREADABLE


def _name(entry: os.DirEntry[str]) -> str:
    link = "@" if entry.is_symlink() else ""
    if entry.name.endswith((".py", ".ipynb")):
        return f"{entry.name}{link}{'' if entry.is_file() else '?'}"
    if entry.is_dir() and not entry.name.startswith(".") and entry.name != "__pycache__":
        return f"{entry.name}{link}/"
    return ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
