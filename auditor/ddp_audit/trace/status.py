"""What a traced run is at now: steps, rate, where each rank is, and what the comparison says so far."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ddp_audit.compare.bulk import aligned
from ddp_audit.compare.run import EXITED, KILLED, RAISED, RankRun, RecordedRun, tally
from ddp_audit.compare.verdict import Comparison, compare_run
from ddp_audit.compare.waiting import Straggler, Waiting
from ddp_audit.events import STEP
from ddp_audit.trace.columns import load_columns

_ENDED = frozenset({EXITED, RAISED, KILLED})


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank: its state and steps, the part of the time that it waits (None where too few steps are known), and what it is in
    or did last, with the seconds since it waits there."""

    rank: int
    state: str
    steps: int
    share: float | None
    doing: str
    since: float | None


@dataclass(slots=True)
class Status:
    """A run at one moment. `rate` is in steps a second, None where it is not known; `ended` says that nothing more will come."""

    seconds: float
    steps: int
    rate: float | None
    ended: bool
    ranks: list[RankStatus]
    comparison: Comparison
    slow: list[tuple[Straggler, Waiting]] = field(default_factory=list)


def read_status(directory: str | os.PathLike[str], now: float | None = None) -> Status:
    """The status of a run from its trace. Raises TraceError."""
    run, places = load_columns(directory)
    now = time.time() if now is None else now
    root = Path(str(run.meta.get("cwd") or "."))
    return status_of(run, compare_run(run, aligner=aligned(run, places), root=root, now=now), now)


def status_of(run: RecordedRun, comparison: Comparison, now: float) -> Status:
    """The status of a run that is read and compared."""
    shares = {rank: one.share(rank) for one in comparison.waiting for rank in one.ranks}
    ranks = [_rank(one, shares.get(rank), now) for rank, one in sorted(run.ranks.items())]
    began = float(run.meta.get("start") or min((e.time for one in run.ranks.values() for e in one.events[:1]), default=now))
    ended = "end" in run.meta or (bool(ranks) and all(one.state in _ENDED for one in ranks))
    until = float(run.meta.get("end") or now)
    steps = max((one.steps for one in ranks), default=0)
    pace = max((one.pace for one in comparison.waiting), default=0.0)
    rate = 1 / pace if pace > 0 else steps / (until - began) if steps and until > began else None
    slow = [(found, one) for one in comparison.waiting for found in one.stragglers]
    return Status(max(0.0, until - began), steps, rate, ended, ranks, comparison, slow)


def _rank(one: RankRun, share: float | None, now: float) -> RankStatus:
    steps: Counter[object] = Counter()
    for event, count in tally(one.events, STEP):
        steps[event.site, event.detail.get("optimizer")] += count
    waiting = one.waiting if one.state not in _ENDED else None
    since = None if waiting is None else max(0.0, now - waiting.time)
    where = "" if waiting is None or waiting.site is None else f" at {waiting.site}"
    doing = one.last if waiting is None else f"{waiting.op}{where} ({waiting.maker})"
    return RankStatus(one.rank, one.state, max(steps.values(), default=0), share, doing, since)
