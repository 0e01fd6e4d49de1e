"""A run as one table in a Parquet file: a row an event, all ranks below each other."""

from __future__ import annotations

import json
from typing import Any

from ddp_audit.compare.explain import frames
from ddp_audit.report.selection import Selection

_BATCH = 200_000  # rows of one group


class NoArrow(Exception):
    """pyarrow is not installed. The text is one line."""


def write(selection: Selection, path: str) -> None:
    """Writes the table. Raises NoArrow, and OSError where the file cannot be written."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise NoArrow("needs pyarrow: pip install 'ddp-audit[parquet]'") from None
    text, number, real = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    schema = pyarrow.schema(
        [
            ("rank", pyarrow.int32()), ("position", number), ("kind", text), ("op", text), ("group", text), ("index", number),
            ("origin", text), ("numel", number), ("dtype", text), ("root", number), ("reduce_op", text), ("site", text),
            ("stack", pyarrow.list_(text)), ("time", real), ("done", real), ("apart", pyarrow.bool_()), ("detail", text),
        ]
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for rank in selection.ranges:
            rows.extend(_rows(selection, rank))
            if len(rows) >= _BATCH:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                rows.clear()
        writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def _rows(selection: Selection, rank: int) -> list[dict[str, Any]]:
    first = selection.ranges[rank].start
    return [
        {
            "rank": rank,
            "position": first + place,
            "kind": event.kind,
            "op": event.op or None,
            "group": event.group,
            "index": event.index,
            "origin": event.origin,
            "numel": event.numel,
            "dtype": event.dtype,
            "root": event.root,
            "reduce_op": event.reduce_op,
            "site": None if event.site is None else str(event.site),
            "stack": [f"{site} {site.function}".rstrip() for site in frames(event)],
            "time": event.time,
            "done": event.detail.get("done"),
            "apart": selection.is_apart(event),
            "detail": json.dumps(dict(event.detail), ensure_ascii=False),
        }
        for place, event in enumerate(selection.events(rank))
    ]
