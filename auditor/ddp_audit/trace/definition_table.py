"""The definitions of the traces of many ranks, each text parsed once, and the shapes that their columns have."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

from ddp_audit import events
from ddp_audit.compare.bulk import Places
from ddp_audit.events import Event
from ddp_audit.trace.checks import Checks
from ddp_audit.trace.event_layout import EventLayout
from ddp_audit.trace.headers import Header
from ddp_audit.trace.records import Stack, checked_text, collective_event, other_event, stack_of, text_of
from ddp_audit.trace.worker import layout

_SIZE = layout.RECORD_SIZE
OFTEN = (events.COLLECTIVE, events.FORWARD, events.BACKWARD, events.STEP, events.BATCH)
_RARE_CODES: dict[str, int] = {}  # kind -> a negative code


class UnsupportedLayout(Exception):
    """A file that the bulk reader leaves to the plain one."""


class Definition:
    """A definition of a file with its stack.

    `code` is equal for definitions of equal text, in whatever file. For kinds with few events in a run, whose text differs from
    rank to rank, it only says the kind.
    """

    __slots__ = ("_template", "code", "group", "kind", "op", "stack", "text")

    def __init__(self, what: int, text: dict[str, Any], stack: Stack, code: int) -> None:
        self.text = text
        self.stack = stack
        self.kind: str = events.COLLECTIVE if what == layout.SIGNATURE_TEXT else text["kind"]
        self.op: str = text["op"] if what == layout.SIGNATURE_TEXT else ""
        self.code = code
        self.group: tuple[str, tuple[int, ...]] | None = None
        self._template: Event | None = None
        if self.kind == events.GROUP and text["detail"].get("name") and text["detail"].get("ranks"):
            self.group = (text["detail"]["name"], tuple(text["detail"]["ranks"]))

    @property
    def template(self) -> Event:
        """The event without index, time, number and value."""
        if self._template is None:
            self._template = self.event(bytes(_SIZE))
        return self._template

    def event(self, record: bytes) -> Event:
        if self.kind == events.COLLECTIVE:
            return collective_event(self.text, self.stack, record)
        return other_event(self.text, self.stack, record)


class DefinitionTable:
    """What the files of a run share."""

    def __init__(self) -> None:
        self.places = Places()
        self.checks = Checks()
        self.likely = 1 << 16  # bytes of records that the next file may have
        self.codes: list[Definition | None] = [None]  # by code
        self._parsed: dict[tuple[int, bytes], tuple[int, Any]] = {}  # records of a definition -> what, and the stack or object
        self._known: dict[tuple[bytes, Stack], Definition] = {}
        self._codes: dict[tuple[str, Stack], int] = {}
        self._streams: dict[tuple[bytes, bytes, bytes], int] = {}
        self._shapes: dict[tuple[int, tuple[int, ...], bool], EventLayout] = {}

    def definitions(self, data: bytes, runs: Sequence[tuple[int, int]], version: int) -> list[Definition | None]:
        """The definitions of a file by number; None for stacks. `runs`: where its definition records stand."""
        found: list[Definition | None] = [None]
        stacks: dict[int, Stack] = {0: ()}
        for first, last in runs:
            while first < last:
                offset = first * _SIZE
                first += data[offset + 8] | data[offset + 9] << 8
                if first > last:
                    if last == runs[-1][1]:
                        break  # the writer died within it: nothing refers to it
                    raise UnsupportedLayout  # its parts do not stand together
                raw = data[offset : first * _SIZE]
                what, value = self._parsed.get((version, raw)) or self._parse(raw, version)
                number = int.from_bytes(raw[4:8], "little")
                if number >= len(found):
                    found.extend([None] * (number + 1 - len(found)))
                if what == layout.STACK_TEXT:
                    stacks[number] = value
                else:
                    found[number] = self._define(raw, what, value, stacks[value["stack"]])
        return found

    def stack(self, data: bytes, runs: Sequence[tuple[int, int]], number: int, version: int) -> Stack:
        """One stack of a file whose definitions are known; empty without one of that number."""
        for first, last in runs if number else ():
            while first < last:
                offset = first * _SIZE
                first += max(1, data[offset + 8] | data[offset + 9] << 8)
                if int.from_bytes(data[offset + 4 : offset + 8], "little") == number and first <= last:
                    what, value = self._parse(data[offset : first * _SIZE], version)
                    return value if what == layout.STACK_TEXT else ()
        return ()

    def _parse(self, raw: bytes, version: int) -> tuple[int, Any]:
        _, what, _, number, count, length, _ = layout.FRAGMENT.unpack_from(raw, len(raw) - _SIZE)
        words = array("I", raw)
        first = layout.DEFINITION | what << 8
        if words[0::8] != array("I", range(first, first + (count << 16), 1 << 16)) or words[1::8].count(number) != count:
            raise UnsupportedLayout
        text = b"".join([raw[at : at + layout.FRAGMENT_TEXT] for at in range(_SIZE - layout.FRAGMENT_TEXT, len(raw), _SIZE)])
        text = text[: (count - 1) * layout.FRAGMENT_TEXT + length]
        if version != layout.UNCHECKED:
            text = checked_text(what, number, text)
        value = stack_of(json.loads(text)) if what == layout.STACK_TEXT else text_of(text)
        self._parsed[version, raw] = (what, value)
        return what, value

    def _define(self, raw: bytes, what: int, text: dict[str, Any], stack: Stack) -> Definition:
        known = self._known.get((raw, stack))
        if known is None:
            kind = events.COLLECTIVE if what == layout.SIGNATURE_TEXT else text["kind"]
            if kind in OFTEN:
                content = json.dumps({**text, "stack": 0}, sort_keys=True)
                code = self._codes.setdefault((content, stack), len(self.codes))
            else:
                code = _RARE_CODES.setdefault(kind, -1 - len(_RARE_CODES))
            known = self._known[raw, stack] = Definition(what, text, stack, code)
            if code == len(self.codes):
                self.codes.append(known)
        return known

    def shape(
        self,
        data: bytes,
        kinds: bytes,
        runs: Sequence[tuple[int, int]],
        definitions: Sequence[Definition | None],
        header: Header,
    ) -> EventLayout:
        """The shape of a file's events."""
        words = array("I", data)
        defined, indices = words[1::8], words[2::8]
        if header.version != layout.UNCHECKED:
            indices = self.checks.only_indices(kinds, indices)
        columns = (
            b"".join([kinds[first:last] for first, last in runs]),
            b"".join([defined[first:last].tobytes() for first, last in runs]),
            b"".join([indices[first:last].tobytes() for first, last in runs]),
        )
        stream = self._streams.setdefault(columns, len(self._streams))
        table = tuple([0 if one is None else one.code for one in definitions])
        key = (stream, table, header.has_gap)
        shape = self._shapes.get(key)
        if shape is None:
            codes = array("i", map(table.__getitem__, array("I", columns[1])))
            for kind, code in set(zip(columns[0], codes, strict=True)):
                known = self.codes[code] if code > 0 else None
                if code == 0 or (kind == layout.COLLECTIVE) != (known is not None and known.kind == events.COLLECTIVE):
                    raise UnsupportedLayout
            rare = {code: kind for kind, code in _RARE_CODES.items()}
            shape = self._shapes[key] = EventLayout(codes, array("I", columns[2]), self, rare, header.has_gap)
        return shape
