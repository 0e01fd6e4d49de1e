"""Finds and reads the files of PyTorch's Flight Recorder: pickles and JSON, in any folders below one, one a rank.

A pickle can name any function of any module and have it called. Those of the Flight Recorder hold dictionaries, lists, tuples,
strings and numbers only, so everything else is refused.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ddp_audit.trace.plain import MOST_RANKS, plain_file, read_plain
from ddp_audit.trace.store import TraceError

_SEQUENCES = ("frames", "process_group", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_NUMBERS = ("collective_seq_id", "seq_id", "p2p_seq_id", "time_created_ns", "time_discovered_completed_ns")
_RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin|trace|dump))?$")
_WORDS = (b"pg_config", b"collective_seq_id")  # a dump has one of them
_NOT_DUMPS = frozenset({".py", ".log", ".txt", ".err", ".out", ".csv", ".md", ".yaml", ".yml", ".sh", ".ddptrace", ".pt", ".pth"})


class OtherPickle(TraceError):
    """A pickle that no Flight Recorder writes: it counts where nothing else is there."""


@dataclass(slots=True)
class Dump:
    """One rank's dump. `groups` are the process groups that the rank knows: name and description to global ranks."""

    path: Path
    rank: int
    version: str
    entries: list[dict[str, Any]]
    groups: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)  # number of a group -> its last collective that was enqueued

    @property
    def latest(self) -> int:
        return max((int(entry.get("time_created_ns") or 0) for entry in self.entries), default=0)


def find_dumps(folder: Path) -> dict[int, Dump]:
    """The dumps in a folder and those below it, by rank. Empty without one.

    Of several dumps of one rank the one that goes furthest counts, whatever the order of files and folders. Raises TraceError
    for a file that is a dump and cannot be read, or whose name does not tell its rank.
    """
    found: dict[int, Dump] = {}
    refused: TraceError | None = None
    for path in sorted(path for path in folder.rglob("*") if path.suffix not in _NOT_DUMPS and path.is_file()):
        try:
            dump = read_dump(path)
        except OtherPickle as error:
            refused = refused or error
            continue
        if dump is None:
            continue
        known = found.get(dump.rank)
        if known is None or _preference(dump) > _preference(known):
            found[dump.rank] = dump
    if refused is not None and not found:
        raise refused
    return found


def _preference(dump: Dump) -> tuple[int, int, int, str]:
    frames = sum(bool(entry.get("frames")) for entry in dump.entries)
    return dump.latest, len(dump.entries), frames, dump.path.name


def read_dump(path: Path) -> Dump | None:
    """One file; None where it is not a dump. Raises TraceError."""
    try:
        with plain_file(path) as file:
            start = file.read(256)
        data = read_plain(path) if start[:1] == b"\x80" or start.lstrip()[:1] == b"{" else b""
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
    if data[:1] == b"\x80":
        value = _unpickled(path, data)
    elif data[:256].lstrip()[:1] == b"{":
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            if any(word in data for word in _WORDS):
                raise TraceError(f"{path}: damaged ({' '.join(str(error).split())})") from error
            return None
    else:
        return None
    if not isinstance(value, dict) or "version" not in value or not ({"entries", "pg_config"} & value.keys()):
        return None
    return _checked(path, value)


def _checked(path: Path, value: dict[str, Any]) -> Dump:
    version = str(value["version"])
    if version.split(".")[0] != "2":
        raise TraceError(f"{path}: version {version} of the Flight Recorder's format; this tool reads versions 2.x")
    named = _RANK.search(path.name)
    rank = value.get("rank") if isinstance(value.get("rank"), int) else int(named[1]) if named else None
    if rank is None or not 0 <= rank < MOST_RANKS:  # digits of a time, say
        raise TraceError(f"{path}: a Flight Recorder dump whose name does not end with its rank")
    entries = value.get("entries") or []
    try:
        for entry in entries:
            _check(entry)
        ordered = sorted(entries, key=lambda entry: int(entry["record_id"]))
        groups = dict(_groups(value.get("pg_config") or {}))
        status = value.get("pg_status") or {}
        enqueued = {str(name): int(one["last_enqueued_collective"]) for name, one in status.items()}
        if any(not 0 <= member < MOST_RANKS for members in groups.values() for member in members):
            raise ValueError("a group of ranks that no run has")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise TraceError(f"{path}: damaged ({type(error).__name__}: {error})") from error
    return Dump(path, rank, version, ordered, groups, enqueued)


def _check(entry: dict[str, Any]) -> None:
    """Raises TypeError, KeyError or their like for an entry that says something else than torch does, of what is used."""
    _ = entry["profiling_name"] + "", int(entry["record_id"]), entry["state"] + ""
    for name in _SEQUENCES:
        if not isinstance(entry.get(name) or (), (list, tuple)):
            raise TypeError(f"{name} is {type(entry[name]).__name__}")
    for name in _NUMBERS:
        int(entry.get(name) or 0)
    for size in (*(entry.get("input_sizes") or ()), *(entry.get("output_sizes") or ())):
        if not isinstance(size, (list, tuple)) or not all(isinstance(length, int) for length in size):
            raise TypeError(f"a size is {size!r}"[:80])
    for frame in entry.get("frames") or ():
        int(frame.get("line") or 0)


def _groups(config: dict[Any, Any]) -> Iterator[tuple[tuple[str, str], tuple[int, ...]]]:
    for key, one in config.items():
        ranks = one.get("ranks")
        if isinstance(ranks, str):  # the text of a list
            ranks = json.loads(ranks) if ranks.strip() else []
        if ranks:
            yield (str(one.get("name") or key), str(one.get("desc") or "")), tuple(int(rank) for rank in ranks)


class _Refused(pickle.UnpicklingError):
    pass


class _Plain(pickle.Unpickler):
    """Loads what needs no class and no function."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Refused(f"refers to {module}.{name}, which a dump of the Flight Recorder does not; it was not loaded")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused("refers to an object outside the file; it was not loaded")


def _unpickled(path: Path, data: bytes) -> Any:
    try:
        return _Plain(io.BytesIO(data)).load()
    except _Refused as error:
        is_dump = any(word in data for word in _WORDS)
        raise (TraceError if is_dump else OtherPickle)(f"{path}: {error}") from error
    except Exception as error:  # a damaged pickle raises whatever its bytes lead to
        text = " ".join(str(error).split())
        raise TraceError(f"{path}: damaged or truncated ({type(error).__name__}: {text})") from error
