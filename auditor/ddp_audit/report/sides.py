"""A prediction and the record of its run side by side: what both say of each collective, runs of equal steps folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ddp_audit.compare.explain import BARRIERS, rank_list
from ddp_audit.compare.predicted import OPEN, Agreement, Row
from ddp_audit.events import (
    DDP_BUCKET,
    DDP_BUFFERS,
    DDP_CONSTRUCTOR,
    DDP_JOIN,
    DDP_REBUILD,
    DDP_UNUSED_MAP,
    DEFAULT_GROUP,
    OBJECT,
    SYNC_BATCHNORM,
    Event,
)
from ddp_audit.report.columns import cut, pad, wrap

WIDTH = 80
_GUTTER = 9  # number of the collective, and whether the two agree
_MOST_LINES = 22  # of all tables, where not all is asked for
_LEAST_LINES = 6  # of a table
_AROUND = 3  # rows shown before and after the first difference
_LONGEST = 64  # rows of a block that is looked for

_SHORT_ORIGIN = {
    DDP_BUCKET: "bucket", DDP_BUFFERS: "buffers", DDP_CONSTRUCTOR: "constructor", DDP_JOIN: "join", DDP_REBUILD: "rebuild",
    DDP_UNUSED_MAP: "used map", SYNC_BATCHNORM: "SyncBN", OBJECT: "object",
}  # fmt: skip
_SHORT_DTYPE = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "u8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that come `times` times in a row; `rows` are those of the first time."""

    rows: Sequence[Row]
    times: int = 1


def blocks(rows: Sequence[Row]) -> list[Block]:
    """The rows with immediate repetitions folded: at each place the block that covers the most rows, the shorter one if equal."""
    keys = [_key(row) for row in rows]
    found: list[Block] = []
    single: list[Row] = []
    at = 0
    while at < len(rows):
        best, length = 1, 0
        for size in range(1, min(_LONGEST, (len(rows) - at) // 2) + 1):
            times = 1
            while keys[at : at + size] == keys[at + size * times : at + size * (times + 1)]:
                times += 1
            if times > 1 and size * times > best * length:
                best, length = times, size
        if best == 1 or best * length < 4:
            single.append(rows[at])
            at += 1
            continue
        if single:
            found.append(Block(single))
            single = []
        found.append(Block(rows[at : at + length], best))
        at += best * length
    return [*found, Block(single)] if single else found


def _key(row: Row) -> tuple[Any, ...]:
    return row.what, *(
        None if e is None else (e.op, e.group, e.origin, e.numel, e.dtype, e.root, e.reduce_op, e.site)
        for e in (row.predicted, row.recorded)
    )


def grouped(agreement: Agreement) -> list[tuple[list[int], list[Row]]]:
    """The rows of the ranks; ranks whose rows are the same share them."""
    found: list[tuple[list[int], list[Row]]] = []
    keys: list[list[tuple[Any, ...]]] = []
    for rank, rows in sorted(agreement.rows.items()):
        key = [_key(row) for row in rows]
        if key in keys:
            found[keys.index(key)][0].append(rank)
        else:
            keys.append(key)
            found.append(([rank], rows))
    return found


# ---- text


def lines(agreement: Agreement, *, full: bool = False, width: int = WIDTH) -> Iterator[str]:
    """The tables of all ranks. Unless `full`, equal steps are folded, and each table is cut to what stands around what matters."""
    parts = grouped(agreement)
    name = _only_file(agreement)
    everybody = sorted(agreement.rows)
    shared = _shared([rows for _, rows in parts]) if len(parts) > 1 else 0
    if shared:
        parts = [(everybody, parts[0][1][:shared]), *((ranks, rows[shared:]) for ranks, rows in parts)]
    rooms = _rooms([sum(len(block.rows) + 1 for block in blocks(rows)) for _, rows in parts])
    for (ranks, rows), room in zip(parts, rooms, strict=True):
        if not rows and not any(agreement.beyond.get(rank) for rank in ranks) and len(parts) > 1:
            continue  # the ranks before have all that there is
        who = "every rank" if ranks == everybody and len(ranks) > 1 else rank_list(ranks)
        yield f"{who}{f', lines of {name}' if name else ''}"
        yield " " * _GUTTER + _joined(["predicted", "recorded"], width)
        table = [line for row in rows for line in _row(row, name, width)] if full else _folded(rows, name, width, room)
        yield from table
        beyond = max(agreement.beyond.get(rank, 0) for rank in ranks)
        if beyond and not (shared and ranks == everybody):
            yield f"{'..':>5}    {beyond:,} more {'was' if beyond == 1 else 'were'} recorded, past what was compared"


def _shared(tables: Sequence[Sequence[Row]]) -> int:
    """How many rows all tables begin with."""
    count = 0
    for same in zip(*tables, strict=False):
        if any(_key(row) != _key(same[0]) for row in same):
            break
        count += 1
    return count


def _rooms(needs: Sequence[int]) -> list[int]:
    """Lines for each table: what it needs, or an equal share of what the smaller ones leave."""
    rooms = [0] * len(needs)
    left = _MOST_LINES
    order = sorted(range(len(needs)), key=lambda number: needs[number])
    for done, number in enumerate(order):
        rooms[number] = max(_LEAST_LINES, min(needs[number], left // (len(order) - done)))
        left -= rooms[number]
    return rooms


def _folded(rows: Sequence[Row], name: str, width: int, most: int) -> list[str]:
    """The table with runs of equal steps folded, then cut in its middle or around the first difference."""
    pieces: list[tuple[int, list[str]]] = []  # the rows that a piece stands for, and its lines
    apart = None
    for block in blocks(rows):
        for row in block.rows:
            if apart is None and row.what not in (None, OPEN):
                apart = len(pieces)
            pieces.append((1, list(_row(row, name, width))))
        if block.times > 1:
            count, more = len(block.rows), block.times - 1
            last = block.rows[0].index + count * block.times - 1
            these = "this one" if count == 1 else f"these {count}"
            again = "once more" if more == 1 else f"{more:,} times more"
            pieces.append((count * more, [f"{'..':>5}    {these} {again}, to number {last}"]))
    if sum(len(text) for _, text in pieces) <= most:
        return [line for _, text in pieces for line in text]
    shown: set[int] = set()
    room = most - 2

    def take(order: Iterator[int]) -> None:
        nonlocal room
        for number in order:
            if number not in shown and 0 <= number < len(pieces):
                if room < len(pieces[number][1]):
                    return
                room -= len(pieces[number][1])
                shown.add(number)

    if apart is not None:
        take(iter([apart, *(apart + side * n for n in range(1, _AROUND + 1) for side in (-1, 1))]))
        take(iter(range(apart)))
    else:
        take(iter(range(len(pieces) - 3, len(pieces))))
        take(iter(range(len(pieces))))
    return list(_with_gaps(pieces, shown))


def _with_gaps(pieces: Sequence[tuple[int, list[str]]], shown: set[int]) -> Iterator[str]:
    skipped = 0
    for number, (count, text) in enumerate(pieces):
        if number in shown:
            if skipped:
                yield f"{'..':>5}    {skipped:,} not shown"
            skipped = 0
            yield from text
        else:
            skipped += count
    if skipped:
        yield f"{'..':>5}    {skipped:,} not shown"


def _row(row: Row, name: str, width: int) -> Iterator[str]:
    mark = "=" if row.what is None else "~" if row.what == OPEN else "x"
    cells = [_cell(event, name) for event in (row.predicted, row.recorded)]
    fits = _fits(width)
    if all(len(what) + len(where) + 1 <= fits for what, where in cells):
        yield f"{row.index:>5} {mark}  " + _joined([_spread(what, where, fits) for what, where in cells], width)
        return
    for number, part in enumerate(zip_longest(*cells)):
        gutter = f"{row.index:>5} {mark}  " if number == 0 else " " * _GUTTER
        yield gutter + _joined([f"  {text}" if number and text else text for text in part], width)


def _fits(width: int) -> int:
    return (width - _GUTTER - 3) // 2


def _joined(parts: Sequence[str], width: int) -> str:
    fits = _fits(width)
    return " | ".join(pad(cut(part, fits), fits) for part in parts).rstrip()


def _spread(what: str, where: str, fits: int) -> str:
    return what + where.rjust(fits - len(what))


def _cell(event: Event | None, name: str) -> tuple[str, str]:
    """What a collective is and where it comes from: `all_reduce f32[64] sum`, `bucket :30`."""
    if event is None:
        return "-", ""
    size = ""
    if event.op not in BARRIERS and (event.numel is not None or event.dtype is not None):
        known = "?" if event.numel is None else str(event.numel)
        size = f" {_SHORT_DTYPE.get(event.dtype or '', event.dtype or '?')}[{known}]"
    reduce_op = f" {event.reduce_op}" if event.reduce_op not in (None, "sum") else ""
    root = f" from {event.root}" if event.root else ""
    group = "" if event.group == DEFAULT_GROUP else f" @{event.group[:6]}"
    place = "an unknown place" if event.site is None else f":{event.site.line}" if name else _short(str(event.site))
    return f"{event.op}{size}{reduce_op}{root}{group}", f"{_SHORT_ORIGIN.get(event.origin, event.origin)} {place}"


def _only_file(agreement: Agreement) -> str:
    """The file that all sites are in, shortened; empty where there are several."""
    events = [e for rows in agreement.rows.values() for row in rows for e in (row.predicted, row.recorded) if e is not None]
    names = {e.site.path.rsplit("/", 1)[-1] for e in events if e.site is not None}
    return names.pop() if len(names) == 1 else ""


def _short(place: str) -> str:
    """A place without folders where it is long."""
    while len(place) > 24 and "/" in place.removeprefix("../"):
        place = "../" + place.removeprefix("../").split("/", 1)[1]
    return place


def wrapped(text: str, width: int = WIDTH) -> list[str]:
    """A sentence in lines."""
    return wrap(text, width, break_on_hyphens=False)


# ---- plain objects


def as_object(agreement: Agreement, event: Callable[[Event], dict[str, Any]], *, full: bool = False) -> list[dict[str, Any]]:
    """The tables as plain objects; `event` makes one of an event. Unless `full`, equal steps are folded into one block.

    A block is `rows` that come `times` times; a row has `index`, `agrees` (null where one side stands alone and need have no
    partner), `what` differs, and both events.
    """
    return [
        {
            "ranks": ranks,
            "beyond": max(agreement.beyond.get(rank, 0) for rank in ranks),
            "blocks": [
                {"times": block.times, "rows": [_row_object(row, event) for row in block.rows]}
                for block in ([Block(rows)] if full else blocks(rows))
            ],
        }
        for ranks, rows in grouped(agreement)
    ]


def _row_object(row: Row, event: Callable[[Event], dict[str, Any]]) -> dict[str, Any]:
    return {
        "index": row.index,
        "agrees": True if row.what is None else None if row.what == OPEN else False,
        "what": None if row.what == OPEN else row.what,
        "predicted": None if row.predicted is None else event(row.predicted),
        "recorded": None if row.recorded is None else event(row.recorded),
    }
