"""The comparison of a run while it is recorded: cheap to ask several times a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ddp_audit.compare.align import Aligner
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import Comparison, compare_run, ended_ranks, explain_left_out, find_divergences, new_aligner
from ddp_audit.events import Event


class LiveComparison:
    """Follows one run, and begins again when the launcher has restarted its ranks. `update` looks at what is new; `finish` gives
    the whole comparison. Of a run whose reader forgets events, `take` is to be called before it does (`FollowRun.consume`): it
    then forgets what the ranks agree on too.

    `patience` is the time, in seconds, for which a divergence is held back: the other ranks may still arrive at it and show
    who is odd, and a rank that just ended may have recorded more than was read.
    """

    def __init__(self, *, patience: float = 1.0, root: Path | None = None) -> None:
        self.patience = patience
        self.root = root
        self._aligner: Aligner | None = None
        self._fed: dict[int, tuple[Sequence[Event], int]] = {}  # rank -> its events, and how many of them the aligner has
        self._ended_since: dict[int, float] = {}
        self._seen_since: dict[object, float] = {}
        self._reported: set[object] = set()

    def take(self, run: RecordedRun) -> None:
        """Takes what is new, and forgets what is settled."""
        self._feed(run).forget()

    def update(self, run: RecordedRun) -> list[Divergence]:
        """Divergences that were not returned before. The same run must be given each time, grown."""
        now = time.monotonic()
        aligner = self._feed(run)
        self._ended_since = {rank: self._ended_since.get(rank, now) for rank in ended_ranks(run)}
        final = {rank for rank, since in self._ended_since.items() if now - since >= self.patience}
        found = []
        for divergence in find_divergences(run, aligner, final):
            key = (divergence.group, divergence.index, divergence.kind, divergence.message)
            since = self._seen_since.setdefault(key, now)
            everyone = set(divergence.ranks) >= set(run.ranks) and divergence.kind not in ("group", "missing-rank", "extra")
            everyone = everyone and divergence.message is None
            if key not in self._reported and (everyone or now - since >= self.patience):
                self._reported.add(key)
                found.append(divergence)
        explain_left_out(run, found)
        return found

    def finish(self, run: RecordedRun, *, stalled: bool = False, now: float | None = None) -> Comparison:
        """The comparison of all that is recorded by now. The run may be updated and finished again."""
        return compare_run(run, stalled=stalled, aligner=self._feed(run), root=self.root, now=now)

    def _feed(self, run: RecordedRun) -> Aligner:
        restarted = any(
            run.ranks[rank].events is not fed or len(fed) < count for rank, (fed, count) in self._fed.items() if rank in run.ranks
        )
        if self._aligner is None or restarted:
            self._aligner = new_aligner(run)
            for known in (self._fed, self._ended_since, self._seen_since, self._reported):
                known.clear()
        self._aligner.know(range(run.world_size), run.groups)
        for rank, rank_run in run.ranks.items():
            _, start = self._fed.get(rank, ((), 0))
            if len(rank_run.events) > start:
                self._aligner.feed(rank, rank_run.events[start:])
                self._fed[rank] = (rank_run.events, len(rank_run.events))
        return self._aligner
