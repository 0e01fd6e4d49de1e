"""Training steps that never ran, as the tracer would have recorded them: with noise, load, and perhaps one rank that is slow.

A step takes about `STEP` seconds. Each phase of each rank varies by itself (`NOISE`), with a load on the rank that comes and goes
(an autoregressive factor), with what all ranks share (the length of a batch), and now and then by a pause.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ddp_audit import events
from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import Event, Site

STEP = 0.2
START = 1_790_000_000.0
SHARES = {"data": 0.12, "forward": 0.28, "backward": 0.45, "optimizer": 0.1, "checkpoint": 0.05}
SAVE_EVERY = 5
BUCKETS = 3
LINES = {"data": 30, "forward": 31, "backward": 33, "optimizer": 34, "checkpoint": 40, "metric": 36}


@dataclass(frozen=True)
class Noise:
    """Relative spreads: of each phase alone, of a rank's load and how long that lasts (from one step to the next), of what ranks
    share; the chance of a pause in a phase, and its length in steps."""

    own: float = 0.04
    load: float = 0.02
    lasts: float = 0.9
    shared: float = 0.08
    pauses: float = 0.004
    pause: float = 0.5


QUIET = Noise()
BUSY = Noise(own=0.08, load=0.08, lasts=0.95, shared=0.15, pauses=0.02, pause=1.0)


def site(what: str) -> Site:
    return Site("train.py", LINES[what], "train")


def steps_of(
    ranks: int,
    steps: int,
    seed: int,
    *,
    slow: int | None = None,
    phase: str = "forward",
    share: float = 0.0,
    noise: Noise = QUIET,
    hosts: int = 1,
    buffers: bool = False,
    metric: bool = False,
    also: tuple[int, str, float] | None = None,
) -> RecordedRun:
    """A run of so many ranks and steps. `slow` takes `share` of a step longer in `phase`, on average: of a checkpoint, which comes
    every `SAVE_EVERY` steps, that many times as much. `also`: one more rank, phase and share."""
    chance = random.Random(seed)
    shifts = [chance.uniform(-30.0, 30.0) if host else 0.0 for host in range(hosts)]
    clock = [shifts[rank * hosts // ranks] for rank in range(ranks)]
    found: dict[int, list[Event]] = {rank: [_start(rank, ranks, rank * hosts // ranks)] for rank in range(ranks)}
    now = [START + chance.uniform(0, 0.5) for _ in range(ranks)]
    load = [0.0] * ranks
    index = 0

    def takes(rank: int, what: str, common: float) -> float:
        base = SHARES[what] * STEP * (SAVE_EVERY if what == "checkpoint" else 1)
        seconds = base * common * chance.lognormvariate(load[rank], noise.own)
        for which, where, much in ((slow, phase, share), also or (None, "", 0.0)):
            if rank == which and what == where:
                seconds += much * STEP * (SAVE_EVERY if what == "checkpoint" else 1)
        if chance.random() < noise.pauses:
            seconds += chance.random() * noise.pause * STEP
        return seconds

    for step in range(steps):
        common = chance.lognormvariate(0.0, noise.shared)
        for rank in range(ranks):
            fresh = (1 - noise.lasts**2) ** 0.5
            load[rank] = noise.lasts * load[rank] + fresh * noise.load * chance.gauss(0, 1)
        for rank in range(ranks):
            began = now[rank]
            now[rank] += takes(rank, "data", common)
            detail = {"loader": 0, "fingerprint": None, "waited": int((now[rank] - began) * 0.9e6)}
            _add(found[rank], events.BATCH, now[rank] + clock[rank], "data", detail)
            now[rank] += 0.0002
            _add(found[rank], events.FORWARD, now[rank] + clock[rank], "forward", {"model": "ddp0", "grad": True})
            if buffers:
                found[rank].append(_collective("broadcast", events.DDP_BUFFERS, index, now[rank] + clock[rank], "forward", 0))
        if buffers:
            index += 1
            now = [max(one, now[0]) + 0.0005 for one in now]
        arrived = []
        begun = []
        for rank in range(ranks):
            now[rank] += takes(rank, "forward", common)
            begun.append(now[rank])
            arrived.append(now[rank] + takes(rank, "backward", common))
        end = max(arrived) + 0.03 * STEP * chance.lognormvariate(0, 0.1)
        for rank in range(ranks):
            done = end + abs(chance.gauss(0, 0.0003))
            at = len(found[rank])
            _add(
                found[rank],
                events.BACKWARD,
                begun[rank] + clock[rank],
                "backward",
                {"done": done + clock[rank], "buckets": BUCKETS},
            )
            for bucket in range(BUCKETS):
                when = begun[rank] + (arrived[rank] - begun[rank]) * (bucket + 1) / BUCKETS
                found[rank].append(
                    _collective("all_reduce", events.DDP_BUCKET, index + bucket, when + clock[rank], "backward", None)
                )
            assert len(found[rank]) == at + 1 + BUCKETS
            began = done + 0.0001
            now[rank] = began + takes(rank, "optimizer", 1.0)
            _add(found[rank], events.STEP, began + clock[rank], "optimizer", {"models": ["ddp0"], "done": now[rank] + clock[rank]})
        index += BUCKETS
        if metric:
            for rank in range(ranks):
                found[rank].append(_collective("all_reduce", events.USER, index, now[rank] + clock[rank], "metric", None))
            index += 1
            now = [max(now) + abs(chance.gauss(0.0005, 0.0002)) for _ in now]
        if step % SAVE_EVERY == SAVE_EVERY - 1:
            for rank in range(ranks):
                began = now[rank]
                now[rank] += takes(rank, "checkpoint", 1.0)
                detail = {"path": f"rank{rank}.pt", "done": now[rank] + clock[rank]}
                _add(found[rank], events.SAVE, began + clock[rank], "checkpoint", detail)
    run = RecordedRun(ranks, groups={events.DEFAULT_GROUP: tuple(range(ranks))}, complete=True)
    run.ranks = {rank: RankRun(rank, own, state=EXITED, code=0) for rank, own in found.items()}
    return run


def _start(rank: int, ranks: int, host: int) -> Event:
    return Event(events.START, time=START, detail={"rank": rank, "world_size": ranks, "host": f"node{host}"})


def _add(found: list[Event], kind: str, time: float, line: str, detail: dict[str, object]) -> None:
    found.append(Event(kind, site=site(line), stack=(site(line),), time=time, detail=detail))


def _collective(op: str, origin: str, index: int, time: float, line: str, root: int | None) -> Event:
    detail = {"async": origin != events.USER, "done": time, "raised": False, "thread": 0}
    return Event(
        events.COLLECTIVE,
        op,
        index=index,
        origin=origin,
        numel=1000,
        dtype="float32",
        root=root,
        reduce_op=None if root is not None else "sum",
        site=site(line),
        stack=(site(line),),
        time=time,
        detail=detail,
    )
