"""Hashes of what all nodes must have alike: the script with the project files that it imports, its config files, the data.

The script is read by the auditor's own reader, which imports nothing of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddp_audit.preflight.settings import Settings
from ddp_audit.source.project import Project, imported_modules

_MOST_FILES = 5000
_MOST_CONFIG = 64 * 2**20  # bytes of an argument's file that is hashed whole
_END = 2**20  # bytes at the head and the tail of a data file
_SAMPLES, _SAMPLE = 16, 2**16
_MOST_ENTRIES = 200_000  # of a data folder
_SAMPLED_FILES = 32


def source_hashes(settings: Settings, arguments: Sequence[str]) -> dict[str, str]:
    """A hash of each project file that the script loads, and of each file that its arguments name, by its name from the script.

    A file that cannot be read has the reason in place of its hash.
    """
    if settings.script is None:
        return {}
    script = Path(settings.script).absolute()
    found = {_name(path, script.parent): _hash(path) for path in _imported(script, settings.roots)}
    for word in arguments:
        for text in (word, word.partition("=")[2]):
            path = Path(text).absolute()
            if text and _is_file(path):
                small = path.stat().st_size <= _MOST_CONFIG
                found.setdefault(_name(path, script.parent), _hash(path) if small else "too large to be hashed whole")
    return found


def _imported(script: Path, roots: Sequence[str]) -> Iterator[Path]:
    project = Project([script], roots=roots)
    waiting, seen = list(project.entries), {str(script)}
    yield script
    while waiting and len(seen) < _MOST_FILES:
        file = waiting.pop()
        for module, level in imported_modules(file.tree):
            found = project.resolve_import(module, level, file)
            if found is not None and found.abspath not in seen:
                seen.add(found.abspath)
                waiting.append(found)
                yield Path(found.abspath)
    for error in project.errors:
        path = Path(error.path).absolute()
        if str(path) not in seen:
            seen.add(str(path))
            yield path


def _name(path: Path, folder: Path) -> str:
    """A path as it is named from the script's folder, so that checkouts in different places compare."""
    return os.path.relpath(path, folder).replace(os.sep, "/")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a word that cannot be a path: too long, or with a zero in it
        return False


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while part := stream.read(_END):
                digest.update(part)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return digest.hexdigest()


def data_facts(name: str) -> dict[str, Any]:
    """Size and samples of a data file, or names, sizes and samples of a folder. `error` where it is not there."""
    path = Path(name)
    try:
        if path.is_dir():
            return _folder_facts(path)
        size = path.stat().st_size
        head, tail, samples = _file_samples(path, size)
        return {"kind": "file", "size": size, "head": head, "tail": tail, "samples": samples}
    except OSError as error:
        return {"error": error.strerror or str(error)}


def _file_samples(path: Path, size: int) -> tuple[str, str, str]:
    with path.open("rb") as stream:
        head = _digest(stream.read(_END))
        stream.seek(max(0, size - _END))
        tail = _digest(stream.read(_END))
        middle = hashlib.sha256()
        for number in range(_SAMPLES):
            stream.seek(max(0, size - _SAMPLE) * (number + 1) // (_SAMPLES + 1))
            middle.update(stream.read(_SAMPLE))
    return head, tail, middle.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _folder_facts(path: Path) -> dict[str, Any]:
    files: list[tuple[str, int]] = []
    for top, folders, names in os.walk(path):
        folders.sort()
        for whole in (Path(top, name) for name in sorted(names)):
            if whole.is_file() and len(files) < _MOST_ENTRIES:
                files.append((os.path.relpath(whole, path), whole.stat().st_size))
    names_and_sizes = "\n".join(f"{name}\0{size}" for name, size in files)
    step = max(1, len(files) // _SAMPLED_FILES)
    contents = hashlib.sha256()
    for name, size in files[::step][:_SAMPLED_FILES]:
        contents.update("".join(_file_samples(path / name, size)).encode())
    return {
        "kind": "folder",
        "files": len(files),
        "size": sum(size for _, size in files),
        "names": _digest(names_and_sizes.encode(errors="surrogateescape")),
        "samples": contents.hexdigest(),
    }


class SharedFolder:
    """A folder that all nodes are said to see as one. Each node writes a file of its own, and all look for those of the others."""

    def __init__(self, path: str, run: str) -> None:
        self._folder = Path(path)
        self._run = run

    def write(self, writer: int) -> str:
        """Writes the file of a rank; returns why not, empty where it was written."""
        try:
            self._file(writer).write_text(self._run, encoding="utf-8")
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def sees(self, writers: Sequence[int]) -> list[int]:
        """Those of some writers whose files are seen from here, with what they wrote."""
        found = []
        try:
            list(self._folder.iterdir())  # NFS then asks its server, and does not answer from its cache
        except OSError:
            return []
        for writer in writers:
            try:
                if self._file(writer).read_text(encoding="utf-8") == self._run:
                    found.append(writer)
            except (OSError, UnicodeDecodeError):
                continue
        return found

    def remove(self, writer: int) -> None:
        """Removes the file of a rank."""
        try:
            self._file(writer).unlink(missing_ok=True)
        except OSError:
            return

    def _file(self, writer: int) -> Path:
        return self._folder / f".ddp-audit-preflight-{self._run}-{writer}"
