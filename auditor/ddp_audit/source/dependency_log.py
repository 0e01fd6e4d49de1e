"""What an audit looked at on the disk, for its cache: contents that were read, paths asked about, folders searched for modules.

The functions here stand where the audit reads or asks. They note something only inside `recording()`, and ask the disk once a path
there. What several entries share (a parsed file, a module that was found) is made under `nested_recording()` or `remembered`, so
that each entry has all that it rests on in its own notes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from ddp_audit.source.reading import read_regular

UNREADABLE = "unreadable"
_LEADS_TO = "\0"  # in what is noted of a module, before where it leads
LINKED = "@"  # begins the value of a folder with links in it, which change without the folder

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class DependencyLog:
    """Everything that the outcome of an audit can depend on besides its options. All paths are absolute.

    `files` holds a hash of each content that was read, `kinds` what stood at a path that was asked about, `documents` a hash of
    the documents in a folder; with Python files after a `*`. What an import can mean is there twice: in `modules` what stood at
    each path that was tried, in `folders` a hash of the names in each folder; few, and more than any single import rests on.
    """

    files: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def add(self, other: DependencyLog) -> None:
        """Takes over what another part or process looked at."""
        self.files |= other.files
        self.kinds |= other.kinds
        self.folders |= other.folders
        self.documents |= other.documents
        self.modules |= other.modules

    def rows(self, imports: str) -> Iterator[tuple[str, str, str]]:
        """All of it as (sort, path, value), of imports the `modules` or the `folders`; `current_value` asks for what holds now."""
        for sort in ("files", "kinds", imports, "documents"):
            for path, value in getattr(self, sort).items():
                yield sort, path, value


_Documents = list[tuple[str, bytes]]
_log: DependencyLog | None = None
_names: dict[str, str] = {}  # asked once a run
_kinds: dict[str, str] = {}
_documents: dict[str, tuple[_Documents, str]] = {}
_modules: dict[str, str] = {}


@contextmanager
def recording() -> Iterator[DependencyLog]:
    """Record what is looked at inside the block, and nothing of it outside."""
    global _log
    before = _log
    if before is None:
        for known in (_names, _kinds, _documents, _modules):
            known.clear()
    _log = DependencyLog()
    try:
        yield _log
    finally:
        _log = before


@contextmanager
def nested_recording() -> Iterator[DependencyLog]:
    """Notes what is looked at inside the block by itself too, where something is being noted."""
    if _log is None:
        yield DependencyLog()
        return
    with recording() as own:
        yield own
    add(own)


def remembered(store: dict[K, tuple[V, DependencyLog]], key: K, make: Callable[[], V]) -> V:
    """What `make` gives, made once. What it looked at is noted each time that it is asked for."""
    if key in store:
        add(store[key][1])
    else:
        with nested_recording() as own:
            value = make()
        store[key] = (value, own)
    return store[key][0]


def is_recording() -> bool:
    """Whether something is being noted."""
    return _log is not None


def add(other: DependencyLog) -> None:
    """Takes over what was noted elsewhere, where something is being noted here."""
    if _log is not None:
        _log.add(other)


def content(path: str | os.PathLike[str], data: bytes | None = None) -> None:
    """Notes that a file was read: `data`, or what it holds now."""
    if _log is not None:
        absolute = os.path.abspath(path)
        _log.files[absolute] = digest_of(absolute) if data is None else digest(data)


def exists(path: str | os.PathLike[str]) -> bool:
    """os.path.exists, noted."""
    return _kind(path) != ""


def is_file(path: str | os.PathLike[str]) -> bool:
    """os.path.isfile, noted."""
    return _kind(path) == "file"


def folder(path: str) -> None:
    """Notes that a module was looked for in a folder, which need not be there: then the nearest one above it is noted."""
    if _log is None:
        return
    while path not in _log.folders:
        names = _names.get(path)
        if names is None:
            names = _names[path] = names_in(path)
        if names or os.path.dirname(path) == path:
            _log.folders[path] = names
            return
        path = os.path.dirname(path)


def module(base: str) -> str:
    """The file that an import of the module at a path without suffix would load, empty without one; noted."""
    if _log is None:
        return module_at(base)
    return _module(base).partition(_LEADS_TO)[0]


def _module(base: str) -> str:
    """What is noted of such a file: its path, and where that leads over symbolic links."""
    assert _log is not None
    if base not in _modules:
        found = module_at(base)
        real = os.path.realpath(found) if found else found
        _modules[base] = found if real == found else found + _LEADS_TO + real
        folder(base)  # once: who asks next is noted in the same run
        folder(os.path.dirname(base))
    return _log.modules.setdefault(base, _modules[base])


def module_at(base: str) -> str:
    """The file that an import of the module at a path without suffix would load."""
    for candidate in (os.path.join(base, "__init__.py"), base + ".py"):
        if os.path.isfile(candidate):
            return candidate
    return ""


def documents_in(folder: str, python: bool = False) -> list[tuple[str, bytes]]:
    """The documents of a folder (source/documents.py), noted."""
    key = os.path.abspath(folder) + "*" * python
    if _log is None:
        return _documents_of(key)
    if key not in _documents:
        found = _documents_of(key)
        _documents[key] = (found, documents_digest(key, found))
    _log.documents[key] = _documents[key][1]
    return list(_documents[key][0])


def current_value(sort: str, path: str) -> str:
    """What of a row holds now, noted. A file that was read in this run is not read again."""
    assert _log is not None
    if sort == "kinds":
        return _kind(path)
    if sort == "modules":
        return _module(path)
    if sort == "documents":
        documents_in(path.removesuffix("*"), path.endswith("*"))
        return _log.documents[path]
    if path not in _log.files:
        content(path)
    return _log.files[path]


def _documents_of(key: str) -> _Documents:
    from ddp_audit.source import documents  # which a run from the cache does not need

    return documents.documents_in(key.removesuffix("*"), key.endswith("*"))


def documents_digest(key: str, found: _Documents | None = None) -> str:
    """A hash of the documents in a folder, empty without one."""
    from ddp_audit.source import documents

    return documents.digest(_documents_of(key) if found is None else found)


def _kind(path: str | os.PathLike[str]) -> str:
    if _log is None:
        return kind_of(path)
    absolute = os.path.abspath(path)
    if absolute not in _kinds:
        _kinds[absolute] = kind_of(absolute)
    return _log.kinds.setdefault(absolute, _kinds[absolute])


def kind_of(path: str | os.PathLike[str]) -> str:
    """What stands at a path: file, folder, other, or nothing (empty)."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def names_in(path: str) -> str:
    """A hash of the names in a folder that can be modules or packages; empty where there is no such folder."""
    linked = ""
    names: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = _name(entry)
                if name:
                    names.append(name)
                    linked = linked or (LINKED if entry.is_symlink() else "")
    except OSError:
        return ""
    return linked + digest("\0".join(sorted(names)).encode(errors="surrogateescape"))


def digest_of(path: str) -> str:
    """A hash of what a file holds now."""
    try:
        return digest(read_regular(path))
    except OSError:
        return UNREADABLE


def digest(data: bytes) -> str:
    """A hash of a content: 128 bits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def _name(entry: os.DirEntry[str]) -> str:
    link = "@" + os.path.realpath(entry.path) if entry.is_symlink() else ""
    if entry.name.endswith((".py", ".ipynb")):
        return f"{entry.name}{link}{'' if entry.is_file() else '?'}"
    if entry.is_dir() and not entry.name.startswith(".") and entry.name != "__pycache__":
        return f"{entry.name}{link}/"
    return ""
