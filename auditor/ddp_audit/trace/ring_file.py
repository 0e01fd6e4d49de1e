"""What of a file that has become a ring can be understood: the rest is taken out of its columns.

Between the first chunk, which is never overwritten, and the others a part of the run is missing. So of the first chunk only the
events count that say what the run is; of the others, records whose definition was overwritten do not count, and neither do
second copies.
"""

from __future__ import annotations

import json
import re
from array import array
from typing import TYPE_CHECKING

from ddp_audit.trace.headers import FIRST_SLOT, PER_CHUNK, Header
from ddp_audit.trace.worker import layout

if TYPE_CHECKING:
    from ddp_audit.trace.definition_table import DefinitionTable

_SIZE = layout.RECORD_SIZE
_IN_FIRST = PER_CHUNK - FIRST_SLOT
_STREAM = (layout.COLLECTIVE, layout.EVENT)
_PARTS = re.compile(b"\\x01+")


def whole(data: bytes, book: DefinitionTable, header: Header) -> bytes:
    """The records with those emptied that cannot be understood, or that are there twice."""
    found = bytearray(data)
    if header.has_gap:
        _empty_torn(found)
    kinds = bytes(found[0::_SIZE])
    definitions = book.definitions(bytes(found), [match.span() for match in _PARTS.finditer(kinds)], header.version)
    named = array("I", data)[1::8]
    count = len(definitions)
    seen: set[tuple[str, bytes]] = set()
    for number, kind in enumerate(kinds):
        if kind not in _STREAM:
            continue
        definition = definitions[named[number]] if named[number] < count else None
        if definition is None:
            if not header.has_gap:
                continue  # damaged: who reads it says so
            found[number * _SIZE] = layout.EMPTY
        elif definition.kind in layout.LASTING:
            at = number * _SIZE
            mark = (json.dumps(definition.text["detail"], sort_keys=True), bytes(found[at + 16 : at + 24]))
            if mark in seen and found[at + layout.STATE_OFFSET] == layout.REPEATED:
                found[at] = layout.EMPTY
            seen.add(mark)
        elif header.has_gap and number < _IN_FIRST:
            found[number * _SIZE] = layout.EMPTY
    return bytes(found)


def _empty_torn(data: bytearray) -> None:
    """Empties the parts of definitions that lie on both sides of the gap."""
    last = min(_IN_FIRST, len(data) // _SIZE) - 1
    if data[last * _SIZE] == layout.DEFINITION:
        _, _, part, _, parts, _, _ = layout.FRAGMENT.unpack_from(data, last * _SIZE)
        for number in range(max(0, last - part), last + 1 if part + 1 < parts else 0):
            data[number * _SIZE] = layout.EMPTY
    for at in range(_IN_FIRST * _SIZE, len(data), _SIZE):
        if data[at] != layout.DEFINITION or layout.FRAGMENT.unpack_from(data, at)[2] == 0:
            return
        data[at] = layout.EMPTY
