"""What the records of a trace file mean: definitions, and the events that records and definitions make together.

The detail of each kind of event is documented in `ddp_audit.trace.store`.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ddp_audit import events
from ddp_audit.events import Event, Site
from ddp_audit.trace.details import check
from ddp_audit.trace.plain import MOST_RANKS
from ddp_audit.trace.worker import layout

Stack = tuple[Site, ...]


def stack_of(value: list[Any]) -> Stack:
    """The sites of a STACK_TEXT."""
    return tuple(Site(path.replace(os.sep, "/"), int(line), str(function)) for path, line, function in value)


def checked_text(what: int, number: int, data: bytes) -> bytes:
    """The text of a definition without its check. Raises ValueError where it was changed."""
    text, check = data[: -layout.U32.size], data[-layout.U32.size :]
    if layout.definition_check(what, number, text) != check:
        raise ValueError("a definition that was changed")
    return text


def text_of(data: bytes) -> dict[str, Any]:
    """The object of a SIGNATURE_TEXT or EVENT_TEXT. Raises ValueError or TypeError for what the tracer does not write."""
    value: dict[str, Any] = json.loads(data)
    detail = value.get("detail")
    if isinstance(detail, dict) and "ranks" in detail:
        ranks = detail["ranks"]
        if isinstance(ranks, dict) and len(range(*ranks["range"])) > MOST_RANKS:
            raise ValueError("a group of too many ranks")
        detail["ranks"] = layout.unpack_ranks(ranks)
    check(value)
    return value


def collective_event(text: dict[str, Any], stack: Stack, record: bytes) -> Event:
    """The event of a COLLECTIVE record."""
    _, state, thread, _, index, _, now, done = layout.RECORD.unpack(record)
    detail: dict[str, Any] = {
        key: text[key] for key in ("call", "shape", "async", "peer", "tag", "library", "sends", "receives") if key in text
    }
    detail.update(done=done if state else None, raised=state == layout.RAISED, thread=thread)
    return Event(
        events.COLLECTIVE,
        text["op"],
        text["group"],
        None if index == layout.NO_INDEX else index,
        text["origin"],
        text["numel"],
        text["dtype"],
        text["root"],
        text["reduce_op"],
        stack[0] if stack else None,
        stack,
        now,
        detail,
    )


def other_event(text: dict[str, Any], stack: Stack, record: bytes) -> Event:
    """The event of an EVENT record."""
    _, state, _, _, _, number, now, done = layout.RECORD.unpack(record)
    kind = text["kind"]
    detail = dict(text["detail"])
    if kind in layout.NUMBER_KEY:
        detail[layout.NUMBER_KEY[kind]] = number
    if kind in layout.VALUE_KEY:
        value = int.from_bytes(record[layout.DONE_OFFSET :], "little")
        detail[layout.VALUE_KEY[kind]] = f"{value:016x}" if value else None
    if kind == events.LABELS:
        detail["weight"], detail["labels"] = layout.LABELS_VALUE.unpack_from(record, layout.DONE_OFFSET)
    if kind == events.FACTOR:
        detail["ratio"] = done or None
    if kind in (events.STEP, events.SAVE):
        detail["done"] = done if state else None
    if kind == events.BACKWARD:
        detail.update(done=done if state else None, raised=state == layout.RAISED)
        if state != layout.DONE:
            detail["buckets"] = None
    return Event(kind, group=text["group"], site=stack[0] if stack else None, stack=stack, time=now, detail=detail)
