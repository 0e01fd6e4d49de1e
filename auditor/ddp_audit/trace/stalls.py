"""Finds ranks that nothing will move any more, while the run goes on: the launcher asks several times a second.

A rank stalls where, for longer than a limit, it

- waits in one collective;
- stands at one place of torch.distributed outside of a collective (a rendezvous, a store, a barrier on a store), as its heartbeats
  show, or those of faulthandler where its tracer has ended. The others must be known and not at work: a rank that is
  slow to come may take ten times as long;
- has ended its program, or does not answer, and neither its process nor a child of it uses the CPU: it hangs at the end of the
  interpreter, in a lock, or is stopped;
- has ended with all others, and a torchrun of one node goes on without any worker.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED, RUNNING, WAITING, RankRun, RecordedRun
from ddp_audit.events import START
from ddp_audit.trace.locked import stands_since
from ddp_audit.trace.processes import cpu_of_tree, has_children, is_lone_agent, is_runnable, process_lives
from ddp_audit.trace.worker import layout

_IDLE_SHARE = 0.01  # of one CPU: what a process uses that waits, and looks from time to time whether it still has to
_TIMES_AT_WORK = 10  # limits after which a rank that the others wait for outside of collectives is not waited for any more


class Stall(NamedTuple):
    """What a rank waits in: equal as long as it is the same wait. `seconds`: for how long."""

    key: tuple[object, ...]
    seconds: float


class Stalls:
    """Follows the waits of a run. `agent`: pid of the command."""

    def __init__(self, folder: Path, limit: float, agent: int) -> None:
        self._folder = folder
        self._limit = limit
        self._agent = agent
        self._waits: dict[int, tuple[tuple[object, ...], float]] = {}  # rank -> what it waits in, and since when
        self._cpu: dict[int, tuple[float, float]] = {}  # pid -> what it had used at a time
        self._alone: float | None = None  # since when no worker of the command lives

    def holds(self, key: object) -> bool:
        """Whether some rank is in this wait still."""
        return any(key == known for known, _ in self._waits.values())

    def forget(self) -> None:
        self._waits.clear()

    def longest(self, run: RecordedRun, now: float) -> Stall | None:
        """The longest wait; `now` is of time.monotonic()."""
        known = {rank for rank, one in run.ranks.items() if one.state != MISSING}
        is_whole = bool(known) and len(known) >= run.world_size
        at_work = is_whole and any(self._is_at_work(one, now) for one in run.ranks.values())
        found: list[Stall] = []
        for rank, one in run.ranks.items():
            wait = self._wait(rank, one, run, now, is_whole, at_work)
            if wait is None:
                self._waits.pop(rank, None)
                continue
            key, since = wait
            if since is not None:
                self._waits[rank] = key, since
            elif self._waits.get(rank, (None,))[0] != key:
                self._waits[rank] = key, now
            found.append(Stall(key, now - self._waits[rank][1]))
        found += self._end_of_all(run, now)
        return max(found, key=lambda stall: stall.seconds, default=None)

    def _wait(
        self, rank: int, one: RankRun, run: RecordedRun, now: float, is_whole: bool, at_work: bool
    ) -> tuple[tuple[object, ...], float | None] | None:
        """What a rank waits in, and since when; None: since this was seen first."""
        if one.untraced:
            since, waits = self.stood(rank, run)
            return ((rank, "untraced", str(one.stands), since), now - (time.time() - since)) if waits and since else None
        if one.state == WAITING and one.waiting is not None:
            event = one.waiting
            return (rank, event.group, event.index, event.time), None
        if one.blocked and is_whole:
            stood = time.time() - one.blocked
            if not at_work or stood > _TIMES_AT_WORK * self._limit:
                return (rank, "blocked", one.blocked), now - stood
            return None
        if (one.state in (EXITED, RAISED) or one.silent) and self._pid(one):
            idle = self._idle_since(self._pid(one), now)
            one.lingers = one.state in (EXITED, RAISED) and now - idle >= self._limit
            return (rank, "idle"), idle
        return None

    def _is_at_work(self, one: RankRun, now: float) -> bool:
        """Whether a rank is neither waiting nor ended, and uses the CPU."""
        if one.state != RUNNING or one.blocked or one.untraced:
            return False
        pid = self._pid(one)
        return not pid or now - self._idle_since(pid, now) < self._limit

    def _end_of_all(self, run: RecordedRun, now: float) -> Iterator[Stall]:
        """That of a torchrun whose workers have all ended."""
        ended = bool(run.ranks) and all(
            one.state == KILLED or (one.state in (EXITED, RAISED) and not self._pid(one)) for one in run.ranks.values()
        )
        if not ended or has_children(self._agent) or not is_lone_agent(self._agent):
            self._alone = None
            return
        self._alone = now if self._alone is None else self._alone
        yield Stall(("agent", self._agent), now - self._alone)

    def _pid(self, one: RankRun) -> int:
        """The process of a rank that lives on this host; 0 where it does not."""
        start = next((e.detail for e in one.events[:1] if e.kind == START), None)
        if start is None or start["host"] != socket.gethostname() or not process_lives(start["pid"], start["ticks"]):
            return 0
        return int(start["pid"])

    def _idle_since(self, pid: int, now: float) -> float:
        """Since when a process and its children have not used the CPU."""
        used = cpu_of_tree(pid)
        before, since = self._cpu.get(pid, (used, now))
        # On a full machine a process that has work waits for the CPU: it gets little of it, and is not idle.
        if used - before > 0.02 + _IDLE_SHARE * (now - since) or used < before or is_runnable(pid):
            before, since = used, now
        self._cpu[pid] = before, since
        return since

    def stood(self, rank: int, run: RecordedRun) -> tuple[float, bool]:
        """Since when a rank whose tracer has ended stands where it stands, and whether ranks wait for each other there."""
        one = run.ranks[rank]
        start = next((e.detail for e in one.events[:1] if e.kind == START), {})
        return stands_since(self._folder / layout.FILE_PATTERN.format(rank), rank, int(start.get("thread") or 0))
