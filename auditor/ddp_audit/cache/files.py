"""Files of the cache: where they lie, findings as they are written there, and how a file is read and put in its place."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddp_audit.cache.reports import cache_path
from ddp_audit.findings import Finding, Fix, Option, Place, Related, Span

MOST_BYTES = 300_000_000
MOST_REPORTS = 100
MOST_PARTS = 30  # sets of entries
MOST_TOOLS = 30  # states of the tool and the rules
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)  # what a damaged file can lead to


def cache_folder() -> Path:
    """Where the files lie: DDP_AUDIT_CACHE, or `ddp-audit` in the user's cache folder."""
    return Path(cache_path())


def document_of(finding: Finding) -> dict[str, Any]:
    """A finding as it is written."""
    return asdict(finding)


def finding_of(item: dict[str, Any]) -> Finding:
    """A finding from what was written. Raises one of DAMAGE."""
    fix, option, places = item["fix"], item["option"], item["places"]
    parts = {
        "span": Span(**item["span"]),
        "related": [Related(**place) for place in item["related"]],
        "fix": None if fix is None else Fix(**fix),
        "option": None if option is None else Option(**option),
        "places": None if places is None else [Place(**place) for place in places],
    }
    return Finding(**{**item, **parts})


def read(path: Path) -> Any:
    """What a file holds. Raises one of DAMAGE."""
    return json.loads(path.read_bytes())


def write(path: Path, document: object) -> None:
    """Writes a document into a file, as `put` does."""
    try:
        data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except ValueError:
        return
    put(path, data)


def put(path: Path, data: bytes) -> None:
    """Puts a file in its place in one step, and drops the oldest of too many. Where that cannot be done nothing is kept."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        _drop_old(path.parent)
    except OSError:
        return


def touch(path: Path) -> None:
    """What was used last is dropped last."""
    try:
        os.utime(path)
    except OSError:  # a cache that can only be read
        return


def _drop_old(folder: Path) -> None:
    """Drops what was used longest ago, where there is too much. Parts that a killed process left go the same way."""
    found = []
    for path in [path for sort in ("parts", "tool", "report") for path in folder.glob(f"{sort}-*")]:
        try:
            status = path.stat()
        except OSError:  # another process was faster
            continue
        found.append((status.st_mtime, path, status.st_size))
    left = {"report": MOST_REPORTS, "parts": MOST_PARTS, "tool": MOST_TOOLS}
    room = MOST_BYTES
    for _, path, size in sorted(found, reverse=True):
        sort = path.name.partition("-")[0]
        left[sort] -= 1
        room -= size
        if left[sort] < 0 or room < 0:
            path.unlink(missing_ok=True)
