"""Reads the traces of many ranks at once: columns of numbers instead of events.

The ranks of a run do nearly the same, so their files hold the same columns (kind, definition and index of each record); what
differs is time. Each distinct set of columns is kept and looked through once, as a `Shape`, and an event is made only where one
is asked for. `load_columns` gives the run that `store.load_run` gives, with events that are made late.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

from ddp_audit import events
from ddp_audit.compare.bulk import Places, Tracks
from ddp_audit.compare.group_names import GroupFacts, note_group
from ddp_audit.compare.messages import Messages
from ddp_audit.compare.run import MISSING, RankRun, RecordedRun
from ddp_audit.events import Event, Site
from ddp_audit.gc_pause import gc_paused
from ddp_audit.trace.definition_table import Definition, DefinitionTable, UnsupportedLayout
from ddp_audit.trace.event_layout import EventLayout
from ddp_audit.trace.headers import FIRST_SLOT, PER_CHUNK, Header, TraceError, is_gone, rank_of, read_header
from ddp_audit.trace.locked import stands_locked
from ddp_audit.trace.plain import open_plain
from ddp_audit.trace.rank_file import RankReader, still_open
from ddp_audit.trace.ring_file import whole
from ddp_audit.trace.standing import judge
from ddp_audit.trace.store import Reader, assemble, description_of, look_past_met, no_trace
from ddp_audit.trace.worker import layout

_SIZE = layout.RECORD_SIZE
_FIRST_BLOCK = 1 << 16
_PAGE = 4096
_WINDOW = 4  # records before one that are read with it
_MOST_MADE = 64
_MOST_OPEN = 4096
_STREAM = re.compile(b"[\\x02\\x03]+")
_PARTS = re.compile(b"\\x01+")
_IS_COLLECTIVE = bytes(kind == layout.COLLECTIVE for kind in range(256))
_IS_ISSUED = bytes(state == layout.ISSUED for state in range(256))
_KNOWN_KINDS = bytes(range(layout.CHECK + 1))

_IN_FIRST = PER_CHUNK - FIRST_SLOT  # records of the first chunk

Progress = Callable[[int, int], None]


class Piece(NamedTuple):
    """A part of a file that has become a ring: its first slot, how many records it holds, and where it begins."""

    slot: int
    records: int
    offset: int


def load_columns(directory: str | os.PathLike[str], progress: Progress | None = None) -> tuple[RecordedRun, Places]:
    """All that a trace folder holds, and the numbers of its places. `progress` receives ranks read and ranks in all.

    Raises TraceError where there is no trace or a file is damaged.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder")
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found if entry.name.startswith("rank-") and entry.name.endswith(".ddptrace"))
    return load_files(folder, {rank: name for name in names if (rank := rank_of(name)) is not None}, progress)


def load_files(folder: Path, names: Mapping[int, str], progress: Progress | None = None) -> tuple[RecordedRun, Places]:
    """What these files of ranks in a folder hold; otherwise as `load_columns`."""
    run = RecordedRun(world_size=0)
    run.meta, run.damage = description_of(folder)
    book = DefinitionTable()
    readers: dict[int, Reader] = {}
    with gc_paused():
        for number, (rank, name) in enumerate(names.items()):
            readers[rank] = _read(f"{folder}/{name}", rank, book)
            if progress is not None:
                progress(number + 1, len(names))
    assemble(run, readers)
    run.messages = _messages(readers, book)
    look_past_met(readers, run.messages)
    if not any(rank.state != MISSING for rank in run.ranks.values()):
        raise no_trace(folder, readers)
    return run, book.places


def _messages(readers: Mapping[int, Reader], book: DefinitionTable) -> Messages:
    found = Messages(book.places.payloads)
    found.partial.update(rank for rank, reader in readers.items() if reader.rank_run.lost)
    for rank, reader in readers.items():
        events_of_rank = reader.rank_run.events
        if isinstance(events_of_rank, LateEvents):
            posts = events_of_rank.shape.posts()
            if posts:
                found.take(rank, posts, events_of_rank.groups())
        else:
            found.feed(rank, events_of_rank)
    return found


def _read(path: str, rank: int, book: DefinitionTable) -> Reader:
    try:
        reader = ColumnReader(path, rank)
        reader.read(book)
        return reader
    except (OSError, TraceError, UnsupportedLayout, KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        # Something that is seldom or damaged: the other reader knows it, or says what is wrong.
        plain = RankReader(Path(path), rank, strict=True)
        plain.read()
        plain.judge()
        return plain


class ColumnReader:
    """One rank's file; what `store.RankReader` knows of it."""

    __slots__ = ("_judged", "called", "groups", "has_header", "path", "rank_run", "run_id", "started", "world_size")

    def __init__(self, path: str, rank: int) -> None:
        self.path = path
        self.rank_run = RankRun(rank)
        self.groups: dict[str, tuple[int, ...]] = {}
        self.called: dict[str, GroupFacts] = {}
        self.has_header = True
        self.started = 0.0
        self.run_id: str | None = None
        self.world_size = 0

    def read(self, book: DefinitionTable) -> None:
        descriptor = open_plain(self.path)
        try:
            start = os.pread(descriptor, layout.HEADER.size + book.likely, 0)
            header = read_header(self.rank_run.rank, start[: layout.HEADER.size], True)
            if header is None or os.fstat(descriptor).st_size % layout.CHUNK:
                raise UnsupportedLayout
            if header.ring:
                pieces = _pieces(header)
                data = _joined(descriptor, pieces)
                after = read_header(self.rank_run.rank, os.pread(descriptor, layout.HEADER.size, 0), True)
                if after is None or after.is_over(header.first_chunk):
                    raise UnsupportedLayout
                data = data[: len(data[::_SIZE].rstrip(b"\0")) * _SIZE]
            else:
                pieces = []
                data = _records(descriptor, start[layout.HEADER.size :], book.likely)
        finally:
            os.close(descriptor)
        self.started = header.start
        book.likely = (len(data) // _PAGE + 2) * _PAGE  # the next file is about as long
        kinds = data[0::_SIZE]
        if kinds.translate(None, _KNOWN_KINDS):
            raise UnsupportedLayout
        if header.version != layout.UNCHECKED:
            slots = b"".join([book.checks.slots(*piece[:2]) for piece in pieces or [Piece(FIRST_SLOT, len(kinds), 0)]])
            if book.checks.first_damaged(data, kinds, slots[: 4 * len(kinds)]) is not None:
                raise UnsupportedLayout
        if header.ring:
            self.rank_run.lost = header.has_gap
            data = whole(data, book, header)
            kinds = data[0::_SIZE]
        definitions = book.definitions(data, _spans(_PARTS, kinds), header.version)
        runs = _spans(_STREAM, kinds)
        shape = book.shape(data, kinds, runs, definitions, header)
        found = LateEvents(self.path, shape, definitions, runs, data, pieces)
        self.rank_run.events = found
        if header.has_gap:
            first = next((p for p in range(len(found)) if found.record(p) >= _IN_FIRST), None)
            self.rank_run.since = 0.0 if first is None else found[first].time
        stood = None if found.shape.rare_of(events.EXIT) else _stood(book, data, _spans(_PARTS, kinds), header)
        self._judge(found, _issued(kinds, data, found), header, stood)

    def _judge(self, found: LateEvents, waits: Iterator[Event], header: Header, stood: Site | None) -> None:
        run = self.rank_run
        starts, exits = found.shape.rare_of(events.START), found.shape.rare_of(events.EXIT)
        host: str | None = None
        ticks = 0
        start: dict[str, Any] | None = None
        for position in starts:
            detail = found.definition(position).text["detail"]
            start = detail
            self.world_size, host, self.run_id, ticks = detail["world_size"], detail["host"], detail["run"], detail["ticks"]
        for position in found.shape.rare_of(events.GROUP):
            group = found.definition(position).group
            if group is not None:
                self.groups[group[0]] = group[1]
                note_group(self.called, found.definition(position).text["detail"], found.definition(position).stack)
        for position in exits:
            run.code = found.definition(position).text["detail"]["code"]
        exited, raised = bool(exits), bool(found.shape.rare_of(events.EXCEPTION))
        gone = not exited and is_gone(host, header.pid, ticks, header.heartbeat)
        locked = partial(stands_locked, Path(self.path), run.rank, start)
        self._judged = partial(
            judge,
            run,
            gone=gone,
            exited=exited,
            raised=raised,
            heartbeat=header.heartbeat,
            untraced=header.has_ended,
            locked=locked,
            blocked=header.blocked,
            seen=lambda: stood,
        )
        self._judged(waits)

    def judge_again(self, is_met: Callable[[int, Event], bool]) -> None:
        self._judged(still_open(enumerate(self.rank_run.events), is_met))


def _stood(book: DefinitionTable, data: bytes, runs: Sequence[tuple[int, int]], header: Header) -> Site | None:
    """The user's line at which the main thread stood at the last heartbeat."""
    return next(iter(book.stack(data, runs, header.stands, header.version)), None)


def _spans(pattern: re.Pattern[bytes], kinds: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(kinds)]


def _pieces(header: Header) -> list[Piece]:
    """Where the records of a ring lie: the first chunk, and the others in order of time."""
    found = [Piece(FIRST_SLOT, _IN_FIRST, layout.HEADER.size)]
    for chunk in range(header.first_chunk, header.newest + 1):
        found.append(Piece(chunk * PER_CHUNK, PER_CHUNK, layout.place_of_chunk(chunk, header.ring) * layout.CHUNK))
    return found


def _joined(descriptor: int, pieces: Sequence[Piece]) -> bytes:
    return b"".join([os.pread(descriptor, piece.records * _SIZE, piece.offset) for piece in pieces])


def _records(descriptor: int, first: bytes | None = None, size: int = _FIRST_BLOCK) -> bytes:
    """The records of a file up to the last that was written. `first` is the first block, of `size` bytes, if it has been read."""
    offset = layout.HEADER.size
    blocks = [os.pread(descriptor, size, offset) if first is None else first]
    full = os.fstat(descriptor).st_size - layout.CHUNK  # the writer takes a chunk when it has filled the one before
    while len(blocks[-1]) == size and (blocks[-1][-_SIZE:].strip(b"\0") or offset + size < full):
        if not blocks[-1].strip(b"\0"):
            raise ValueError("a hole")
        offset += size
        size *= 2
        blocks.append(os.pread(descriptor, size, offset))
    last = blocks[-1]
    used = len(last[: len(last) // _SIZE * _SIZE : _SIZE].rstrip(b"\0"))
    blocks[-1] = last[: used * _SIZE]
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _issued(kinds: bytes, data: bytes, found: LateEvents) -> Iterator[Event]:
    """The collectives that have not returned, in order."""
    open_ones = int.from_bytes(kinds.translate(_IS_COLLECTIVE), "little") & int.from_bytes(
        data[layout.STATE_OFFSET :: _SIZE].translate(_IS_ISSUED), "little"
    )
    if not open_ones:
        return iter(())
    places = open_ones.to_bytes(len(kinds), "little")
    numbers = [match.start() for match in re.finditer(b"\\x01", places)][-_MOST_OPEN:]
    return (found.made(number, data[number * _SIZE : (number + 1) * _SIZE]) for number in numbers)


class LateEvents(Sequence[Event]):
    """The events of one rank, made when they are asked for and read from the file again where need be."""

    __slots__ = (
        "_batches", "_definitions", "_made", "_path", "_pieces", "_rare", "_records", "_starts", "shape",
    )  # fmt: skip

    def __init__(
        self,
        path: str,
        shape: EventLayout,
        definitions: list[Definition | None],
        runs: list[tuple[int, int]],
        data: bytes,
        pieces: Sequence[Piece] = (),
    ) -> None:
        self._path = path
        self._pieces = pieces  # of a ring
        self.shape = shape
        self._definitions = definitions
        # A run of records and the position of its first event; few, since definitions come early.
        self._starts: list[int] = []
        self._records: list[int] = []
        position = 0
        for first, last in runs:
            self._starts.append(position)
            self._records.append(first)
            position += last - first
        self._rare = {position: self._slice(data, position) for position in shape.rare_positions}
        self._made: dict[int, Event] = {}
        self._batches: array[int] = shape.values_of_forwards(data, runs)

    def _slice(self, data: bytes, position: int) -> bytes:
        offset = self.record(position) * _SIZE
        return data[offset : offset + _SIZE]

    def record(self, position: int) -> int:
        """The number of an event's record."""
        run = bisect_right(self._starts, position) - 1
        return self._records[run] + position - self._starts[run]

    def made(self, number: int, record: bytes) -> Event:
        """The event of a record of the file."""
        definition = self._definitions[int.from_bytes(record[4:8], "little")]
        if definition is None:
            raise TraceError(f"{self._path}: damaged at byte {layout.HEADER.size + number * _SIZE}")
        return definition.event(record)

    def __len__(self) -> int:
        return len(self.shape)

    @overload
    def __getitem__(self, position: int) -> Event: ...
    @overload
    def __getitem__(self, position: slice) -> list[Event]: ...
    def __getitem__(self, position: int | slice) -> Event | list[Event]:
        if isinstance(position, slice):
            taken = range(*position.indices(len(self)))
            return self._run(taken) if taken.step == 1 and len(taken) > 1 else [self[one] for one in taken]
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(position)
        if position not in self._made:
            if len(self._made) > _MOST_MADE:
                self._made.clear()
            if position in self._rare:
                self._make(position, self._rare[position])
            else:
                self._read_around(position)
        return self._made[position]

    def _make(self, position: int, record: bytes) -> None:
        self._made[position] = self.made(self.record(position), record)

    def _read_around(self, position: int) -> None:
        around = range(max(0, position - _WINDOW), min(len(self), position + 2))
        self._made.update(zip(around, self._run(around), strict=True))

    def _run(self, positions: range) -> list[Event]:
        """The events at positions that follow each other."""
        start = self.record(positions[0])
        count = self.record(positions[-1]) + 1 - start
        descriptor = open_plain(self._path)
        try:
            data = self._between(descriptor, start, start + count)
        finally:
            os.close(descriptor)
        offsets = [(self.record(one) - start) * _SIZE for one in positions]
        return [self.made(start + offset // _SIZE, data[offset : offset + _SIZE]) for offset in offsets]

    def __iter__(self) -> Iterator[Event]:
        return self._at(range(len(self)))

    def _at(self, positions: Iterable[int]) -> Iterator[Event]:
        """The events at many positions."""
        descriptor = open_plain(self._path)
        try:
            data = _joined(descriptor, self._pieces) if self._pieces else _records(descriptor)
        finally:
            os.close(descriptor)
        for position in positions:
            number = self.record(position)
            yield self.made(number, data[number * _SIZE : (number + 1) * _SIZE])

    def _between(self, descriptor: int, first: int, last: int) -> bytes:
        """The bytes of records from one to another."""
        if not self._pieces:
            return os.pread(descriptor, (last - first) * _SIZE, layout.HEADER.size + first * _SIZE)
        found, at = b"", 0
        for piece in self._pieces:
            start, end = max(first - at, 0), min(last - at, piece.records)
            if start < end:
                found += os.pread(descriptor, (end - start) * _SIZE, piece.offset + start * _SIZE)
            at += piece.records
        return found

    def groups(self) -> list[tuple[int, dict[str, Any]]]:
        """The details of the GROUP events, and where they stand."""
        return [(position, self.definition(position).text["detail"]) for position in self.shape.rare_of(events.GROUP)]

    # -- looking through (`compare.run.Looked`, `compare.bulk.Tracked`)

    def definition(self, position: int) -> Definition:
        """The definition of an event of a rare kind."""
        found = self._definitions[int.from_bytes(self._rare[position][4:8], "little")]
        if found is None:
            raise UnsupportedLayout
        return found

    def of_kinds(self, kinds: tuple[str, ...]) -> Iterator[Event]:
        rare = sorted(p for kind in kinds for p in self.shape.rare_of(kind))
        if self.shape.has_often(kinds):
            return self._at(sorted([*self.shape.positions_of(kinds), *rare]))
        return (self[position] for position in rare)

    def tally(self, kind: str) -> Iterable[tuple[Event, int]]:
        rare = self.shape.rare_of(kind)
        return [(self.definition(position).template, 1) for position in rare] if rare else self.shape.tally(kind)

    def alike(self, position: int) -> Event:
        """The event at a position but for its time, number and value."""
        return self.shape.alike(position) or self.definition(position).template

    def time(self, position: int) -> float:
        return self[position].time

    def backwards(self) -> Iterator[Event]:
        return (self.alike(position) for position in range(len(self) - 1, -1, -1))

    def trained(self) -> dict[str, tuple[Event, Sequence[object]]]:
        return {model: (first, chosen(self._batches)) for model, (first, chosen) in self.shape.trained().items()}

    def epochs(self) -> list[tuple[Event, list[object]]]:
        known = [(position, self.definition(position)) for position in self.shape.rare_of(events.SAMPLER)]
        samplers = [position for position, one in known if one.text["detail"].get("action") == "iter"]
        if len(samplers) < 2:
            return []  # no epoch that could repeat another
        found: list[tuple[Event, list[object]]] = []
        for first, last in zip(samplers, [*samplers[1:], len(self)], strict=True):
            graded = self.shape.graded_forwards(first, last)
            found.append((self.alike(first), [self._batches[number] for number in graded if self._batches[number]]))
        return found

    def tracks(self) -> Tracks:
        return self.shape.tracks()

    def forward_before(self, position: int) -> Event | None:
        before = self.shape.forward_before(position)
        return None if before is None else self.alike(before)
