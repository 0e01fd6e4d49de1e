"""Earlier attempts of a run: torchrun restarts all ranks when one fails (`--max-restarts`), and each moves aside the file of the
rank that it replaces, to `rank-00000.ddptrace.0`, `.1`, .. (see `worker.tracer`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddp_audit import events
from ddp_audit.compare.bulk import Places
from ddp_audit.compare.run import RecordedRun, of_kinds
from ddp_audit.trace.columns import load_files
from ddp_audit.trace.store import TraceError

_ASIDE = re.compile(r"rank-(\d+)\.ddptrace\.(\d+)")


def earlier_attempts(folder: Path, run: RecordedRun) -> Iterator[tuple[int, RecordedRun, Places]]:
    """The attempts before the one that `run` is, first to last: each one's number from 0, what its ranks recorded, and the numbers
    of its places. Files that another run left, or that cannot be read, are passed over."""
    last = _identity(run)
    files: dict[int, dict[int, str]] = {}
    for path in sorted(folder.glob("rank-*.ddptrace.*")):
        found = _ASIDE.fullmatch(path.name)
        if found:
            files.setdefault(int(found[2]), {})[int(found[1])] = path.name
    for _, names in sorted(files.items()):
        try:
            earlier, places = load_files(folder, names)
        except TraceError:
            continue
        if any(one.damage for one in earlier.ranks.values()):
            continue
        identity = _identity(earlier)
        if identity is None or last is None or identity[0] != last[0] or identity[1] >= last[1]:
            continue
        earlier.meta = {**earlier.meta, "killed": False, "killed_ranks": []}  # that tells of the last attempt
        yield identity[1], earlier, places


def _identity(run: RecordedRun) -> tuple[str, int] | None:
    """The id of a run and the number of its attempt."""
    for rank in run.ranks.values():
        for start in of_kinds(rank.events, events.START):
            return start.detail["run"], int(start.detail.get("restart", 0))
    return None
