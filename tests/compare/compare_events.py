"""Builders of events and runs for the tests of comparison."""

from __future__ import annotations

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import COLLECTIVE, EXCEPTION, FORWARD, Event, Site


def site(line: int, function: str = "main", path: str = "train.py") -> Site:
    return Site(path, line, function)


def call(op: str, line: int = 1, **fields: object) -> Event:
    fields.setdefault("stack", (site(line),))
    fields.setdefault("site", fields["stack"][0] if fields["stack"] else None)  # type: ignore[index]
    return Event(COLLECTIVE, op, **fields)  # type: ignore[arg-type]


def all_reduce(line: int = 1, numel: int | None = 4, **fields: object) -> Event:
    fields.setdefault("dtype", "float32")
    fields.setdefault("reduce_op", "sum")
    return call("all_reduce", line, numel=numel, **fields)


def broadcast(line: int = 1, numel: int | None = 4, root: int | None = 0, **fields: object) -> Event:
    fields.setdefault("dtype", "float32")
    return call("broadcast", line, numel=numel, root=root, **fields)


def barrier(line: int = 1, **fields: object) -> Event:
    return call("barrier", line, **fields)


def forward(grad: bool) -> Event:
    return Event(FORWARD, detail={"grad": grad, "model": 0})


def exception(kind: str, text: str, at: Site | None = None) -> Event:
    return Event(EXCEPTION, stack=() if at is None else (at,), detail={"type": kind, "text": text})


def rank_run(rank: int, events: list[Event], state: str = EXITED, code: int | None = None, **fields: object) -> RankRun:
    if code is None and state == EXITED:
        code = 0
    return RankRun(rank, events, state, code, **fields)  # type: ignore[arg-type]


def recorded(*ranks: RankRun, complete: bool | None = None, **groups: tuple[int, ...]) -> RecordedRun:
    if complete is None:
        complete = all(run.state in ("exited", "raised") for run in ranks)
    names = {"default": tuple(range(len(ranks))), **groups}
    return RecordedRun(len(ranks), {run.rank: run for run in ranks}, names, complete)
