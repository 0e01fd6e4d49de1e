"""Reads one rank's file, once or again and again while it is written. What `Event.detail` holds is documented in `store`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ddp_audit import events
from ddp_audit.compare.group_names import GroupFacts, note_group
from ddp_audit.compare.recent import RecentEvents
from ddp_audit.compare.run import EMPTY_FILE, MISSING, RankRun
from ddp_audit.events import Event, Site
from ddp_audit.trace.checks import is_whole
from ddp_audit.trace.headers import FIRST_SLOT, PER_CHUNK, Header, TraceError, is_gone, one_line, read_header
from ddp_audit.trace.locked import stands_locked
from ddp_audit.trace.plain import plain_file
from ddp_audit.trace.records import checked_text, collective_event, other_event, stack_of, text_of
from ddp_audit.trace.standing import judge
from ddp_audit.trace.worker import layout

_BLOCK = 1 << 16
_HOLE_PATIENCE = 1.0  # seconds that a live reader leaves a record that is being written
_MOST_OPEN = 4096  # records looked at again for their mark of completion
_AT_ONCE = 1 << 14  # bytes of each rank's file that are read before those of the next, where a run is watched
_MOST_CHECKS = 64  # running hashes kept


class RankReader:
    """One rank's file, read from where the last reading ended."""

    def __init__(self, path: Path, rank: int, strict: bool = False, *, forgets: bool = False) -> None:
        self.path = path
        self.events: list[Event] | RecentEvents = RecentEvents() if forgets else []
        self.rank_run = RankRun(rank, self.events)
        self.groups: dict[str, tuple[int, ...]] = {}
        self.called: dict[str, GroupFacts] = {}
        self.has_header = False
        self.is_replaced = False  # the worker has restarted and writes a new file
        self.started = 0.0
        self.run_id: str | None = None
        self.world_size = 0
        self.pid = 0
        self.host: str | None = None
        self.recorded = 0
        self.returned = 0
        self.checks: dict[int, int] = {}  # running hash of the rank by count of collectives
        self._strict = strict
        self._most = _AT_ONCE if forgets else 0
        self._ticks = 0
        self._start: Mapping[str, Any] | None = None
        self._header: Header | None = None
        self._slot = FIRST_SLOT
        self._is_full = False  # the part that was read last was full: more may follow
        self._parts: dict[int, dict[int, bytes]] = {}
        self._stacks: dict[int, tuple[Site, ...]] = {0: ()}
        self._texts: dict[int, dict[str, Any]] = {}
        self._open: list[tuple[int, int]] = []  # (offset in the file, position in events) of what has not returned
        self._again: set[tuple[str, float]] = set()  # events of which the ring has copies
        self._hole_since = 0.0
        self._raised = False
        self._judged: Callable[[Iterable[Event]], None] = lambda waits: None
        self._exited = False

    def read(self) -> bool:
        """Reads what is new, or the next part of it; `judge` then brings `rank_run` up to date. Whether there is more to read.

        What is damaged ends the reading: `rank_run.damage` says so.
        """
        self._is_full = False
        if self.rank_run.damage:
            return False
        try:
            with plain_file(self.path) as file:
                if self._read_header(file):
                    for offset, record in self._new_records(file):
                        self._take(offset, record)
                    self._look_again(file)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.rank_run.damage = str(error.strerror or error)
        except TraceError as error:
            self.rank_run.damage = str(error)
        return bool(self._most) and self._is_full

    def forget(self, needed: set[int]) -> None:
        """Forgets all but the newest events, those that have not returned, and those at the positions in `needed`."""
        if isinstance(self.events, RecentEvents):
            self.events.forget(needed.union(position for _, position in self._open))

    def _read_header(self, file: Any) -> bool:
        known = read_header(self.rank_run.rank, file.read(layout.HEADER.size), self._strict)
        if known is None:
            return False  # being made
        if known.pid != self.pid and self.has_header:
            self.is_replaced = True
            return False
        if self._slot == FIRST_SLOT and known.has_gap:
            self.rank_run.lost = True
        self.has_header, self.pid, self.started = True, known.pid, known.start
        self._header = known
        return True

    def _new_records(self, file: Any) -> Iterator[tuple[int, bytes]]:
        """The records that are new, each with its place in the file."""
        size = layout.RECORD_SIZE
        while (header := self._header) is not None:
            chunk, within = divmod(self._slot, PER_CHUNK)
            if 0 < chunk < header.first_chunk and (self.rank_run.lost or header.is_over(chunk)):
                self._lose(header)
                continue
            place = layout.place_of_chunk(chunk, header.ring) * layout.CHUNK
            length = min(self._most or _BLOCK, layout.CHUNK - within * size)
            file.seek(place + within * size)
            block = file.read(length)
            if header.ring and self._is_over(file, chunk):
                continue
            used = -(-len(block.rstrip(b"\0")) // size) * size
            for at in range(0, used, size):
                record = block[at : at + size]
                if record[0] == layout.EMPTY and not self._may_skip_hole():
                    return
                if len(record) < size:
                    raise TraceError("cut off in the middle of a record")
                self._hole_since = 0.0
                self._slot += 1
                if record[0] != layout.EMPTY:
                    yield place + (self._slot - 1) % PER_CHUNK * size, record
            self._is_full = used == length or self._skips_rest(file, chunk)
            if self._most or not self._is_full:
                return

    def _skips_rest(self, file: Any, chunk: int) -> bool:
        """Whether to go on with the next chunk, where the rest of one was not written."""
        header, size = self._header, os.fstat(file.fileno()).st_size
        last = header.newest if header is not None and header.ring else -(-size // layout.CHUNK) - 1
        if self._strict and size % layout.CHUNK and not self._exited:
            raise TraceError(f"cut off after {size:,} bytes")
        if chunk >= last:
            return False
        if self._strict and chunk < last - 1:
            raise TraceError(f"damaged at byte {self._slot * layout.RECORD_SIZE} (nothing from there on)")
        if not self._may_skip_hole():
            return False
        self._slot = (chunk + 1) * PER_CHUNK
        return True

    def _is_over(self, file: Any, chunk: int) -> bool:
        """Whether a chunk of the ring was taken again while it was read."""
        file.seek(0)
        now = read_header(self.rank_run.rank, file.read(layout.HEADER.size), self._strict)
        if now is None or not now.is_over(chunk):
            return False
        self._header = now
        return True

    def _lose(self, header: Header) -> None:
        """Goes on where the ring begins by now: what came before it was overwritten, before it was read."""
        self._slot = header.first_chunk * PER_CHUNK
        self.rank_run.lost, self.rank_run.since = True, 0.0

    def _may_skip_hole(self) -> bool:
        """Whether an empty record with written ones after it will stay empty: its writer died, or had time enough."""
        now = time.monotonic()
        self._hole_since = self._hole_since or now
        return self._strict or now - self._hole_since > _HOLE_PATIENCE or self._is_gone()

    def _take(self, offset: int, record: bytes) -> None:
        kind = record[0]
        if kind > layout.CHECK:
            raise TraceError(f"damaged at byte {offset} (unknown kind of record {kind})")
        header = self._header
        if header is not None and header.version != layout.UNCHECKED and not self._is_whole(offset, record):
            raise TraceError(f"damaged at byte {offset} (a record that was changed or moved)")
        try:
            if kind == layout.DEFINITION:
                self._take_part(record)
            elif kind == layout.CHECK:
                fields = layout.CHECK_RECORD.unpack(record)
                self.checks[fields[4]] = fields[6]
                if len(self.checks) > _MOST_CHECKS:
                    del self.checks[next(iter(self.checks))]
            elif not self.rank_run.lost or layout.RECORD.unpack(record)[3] in self._texts:
                self._take_event(offset, record)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise TraceError(f"damaged at byte {offset} ({type(error).__name__}: {one_line(error)})") from error

    def _is_whole(self, offset: int, record: bytes) -> bool:
        """Whether a record is as it was written; one that is being completed is looked at again."""
        if is_whole(record, self._slot - 1):
            return True
        if record[0] != layout.EVENT:
            return False
        with plain_file(self.path) as file:
            file.seek(offset)
            return is_whole(file.read(layout.RECORD_SIZE).ljust(layout.RECORD_SIZE, b"\0"), self._slot - 1)

    def _take_part(self, record: bytes) -> None:
        _, what, part, number, parts, length, text = layout.FRAGMENT.unpack(record)
        held = self._parts.setdefault(number, {})
        held[part] = text[:length]
        if len(held) < parts:
            return
        del self._parts[number]
        data = b"".join(held[i] for i in range(parts))
        if self._header is not None and self._header.version != layout.UNCHECKED:
            data = checked_text(what, number, data)
        if what == layout.STACK_TEXT:
            self._stacks[number] = stack_of(json.loads(data))
        else:
            self._texts[number] = text_of(data)

    def _take_event(self, offset: int, record: bytes) -> None:
        """Takes the event of a COLLECTIVE or EVENT record."""
        text = self._texts[layout.RECORD.unpack(record)[3]]
        stack = self._stacks.get(text["stack"], ()) if self.rank_run.lost else self._stacks[text["stack"]]
        is_collective = record[0] == layout.COLLECTIVE
        event = (collective_event if is_collective else other_event)(text, stack, record)
        if self.rank_run.lost and self._slot <= PER_CHUNK and event.kind not in layout.LASTING:
            return  # what came between it and the rest was overwritten
        if event.kind in layout.LASTING:
            mark = (json.dumps(event.detail, sort_keys=True), event.time)
            if record[layout.STATE_OFFSET] == layout.REPEATED and mark in self._again:
                return
            self._again.add(mark)
        elif self.rank_run.lost and not self.rank_run.since:
            self.rank_run.since = event.time
        if is_collective or event.kind == events.BACKWARD:
            if event.detail["done"] is None:
                self._open.append((offset, len(self.events)))
            elif is_collective:
                self.returned += 1
        self.events.append(event)
        self.recorded += event.kind != events.STACK
        self._note(event)

    def _note(self, event: Event) -> None:
        detail = event.detail
        if event.kind == events.START:
            self.world_size, self.host, self.run_id = detail["world_size"], detail["host"], detail["run"]
            self._ticks, self._start = detail["ticks"], detail
        elif event.kind == events.GROUP and detail.get("name") and detail.get("ranks"):
            self.groups[detail["name"]] = tuple(detail["ranks"])
            note_group(self.called, detail, event.stack)
        elif event.kind == events.EXCEPTION:
            self._raised = True
        elif event.kind == events.EXIT:
            self._exited = True
            self.rank_run.code = detail["code"]

    def _look_again(self, file: Any) -> None:
        """Reads the marks of completion of what had not returned."""
        still: list[tuple[int, int]] = []
        for offset, position in self._open[-_MOST_OPEN:]:
            file.seek(offset)
            record = file.read(layout.RECORD_SIZE)
            event = self.events[position]
            if len(record) == layout.RECORD_SIZE and layout.RECORD.unpack(record)[6] != event.time:
                continue  # the ring has come round: another record is there
            if len(record) < layout.RECORD_SIZE or record[layout.STATE_OFFSET] == layout.ISSUED:
                still.append((offset, position))
                continue
            _, state, _, _, _, number, _, done = layout.RECORD.unpack(record)
            detail = {**event.detail, "done": done, "raised": state == layout.RAISED}
            if event.kind == events.BACKWARD:
                detail["buckets"] = number if state == layout.DONE else None
            else:
                self.returned += 1
            event = replace(event, detail=detail)
            if isinstance(self.events, RecentEvents):
                self.events.replace(position, event)
            else:
                self.events[position] = event
        self._open = still

    def _is_gone(self) -> bool:
        return is_gone(self.host, self.pid, self._ticks, 0.0 if self._header is None else self._header.heartbeat)

    def judge(self) -> None:
        """Derives the rank's state from its events and its process."""
        header = self._header
        if header is None or (self.rank_run.damage and not self.events):
            self.rank_run.state, self.rank_run.last = MISSING, self.rank_run.damage or EMPTY_FILE
            return
        gone = not self._exited and self._is_gone()
        waits = [self.events[position] for _, position in self._open if self.events[position].kind == events.COLLECTIVE]
        self._judged = partial(
            judge,
            self.rank_run,
            gone=gone,
            exited=self._exited,
            raised=self._raised,
            heartbeat=header.heartbeat,
            untraced=header.has_ended or bool(self.rank_run.damage),
            locked=partial(stands_locked, self.path, self.rank_run.rank, self._start),
            blocked=header.blocked,
            seen=lambda: next(iter(self._stacks.get(header.stands, ())), None),
        )
        self._judged(waits)

    def judge_again(self, is_met: Callable[[int, Event], bool]) -> None:
        self._judged(still_open(((position, self.events[position]) for _, position in self._open), is_met))


def still_open(found: Iterable[tuple[int, Event]], is_met: Callable[[int, Event], bool]) -> Iterator[Event]:
    """What among events, with their positions, has not returned; messages that have met their other end are passed over."""
    for position, event in found:
        is_open = event.kind == events.COLLECTIVE and event.detail["done"] is None
        if is_open and not (may_be_done(event) and is_met(position, event)):
            yield event


def may_be_done(event: Event) -> bool:
    return event.op in events.POINT_TO_POINT and event.detail["async"] is not False
