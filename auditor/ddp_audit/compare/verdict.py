"""What a recorded run comes to: its divergences, silent faults and where each rank stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddp_audit.compare.align import Aligner
from ddp_audit.compare.call_site_mismatch import Crossed
from ddp_audit.compare.explain import exception_text, last_text, left_at, raised_at, standing
from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.left_out import told
from ddp_audit.compare.missing_ranks import missing, wait_cycle
from ddp_audit.compare.p2p_matching import Partners, time_of
from ddp_audit.compare.run import KILLED, MISSING, RankRun, RecordedRun, tally
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.silent import silent_faults
from ddp_audit.compare.termination import exited_in_order, failed_by_itself, has_ended
from ddp_audit.compare.waiting import Waiting, waiting
from ddp_audit.events import COLLECTIVE, GROUP, POINT_TO_POINT, Event, Site

AGREED = "agreed"
DIVERGED = "diverged"
STALLED = "stalled"
INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class RankState:
    """Where one rank is or how it ended. `text` goes on after the rank's name: `waits in broadcast .. at train.py:224`.

    `error` is the exception that left the script, in one line, or the name of a fatal signal, and `raised_at` the user's line that
    raised it. `failed` says that the rank ended by a fault of its own: no peer, launcher or user ended it.
    """

    rank: int
    events: int
    collectives: int
    state: str
    code: int | None
    last: str
    text: str
    error: str = ""
    raised_at: Site | None = None
    failed: bool = False
    untraced: bool = False  # its tracer ended before it
    stopped: bool = False  # the tracer's launcher ended it
    lingers: bool = False  # its program had ended, and its process had not when the launcher ended it
    damage: str = ""  # what is wrong with its trace, which is read up to there
    left_at: Site | None = None  # the user's line at which its process ended, by an exit or a fatal signal
    last_seen: Site | None = None  # of one that was killed or does not answer the user's line at which it was seen last
    sent: int = 0  # messages to other ranks
    since: float = 0.0  # when what is known of it begins, where its trace is a ring and what came before was overwritten


@dataclass(slots=True)
class Comparison:
    """The result. `divergences` holds real ones, earliest first, and then the `crossed` notices.

    Where the launcher has restarted the ranks, this is the last attempt, the one with the number `attempt` from 0, and `earlier`
    holds those before it. `waiting` says of each group that trains how long its ranks waited, and which are slow.
    """

    verdict: str
    world_size: int
    complete: bool
    divergences: list[Divergence] = field(default_factory=list)
    silent: list[SilentFault] = field(default_factory=list)
    ranks: dict[int, RankState] = field(default_factory=dict)
    attempt: int = 0
    earlier: list[Comparison] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    damage: str = ""  # what is wrong with the description of the run, in a sentence

    @property
    def parted(self) -> list[Divergence]:
        """The real divergences, without notices."""
        return [divergence for divergence in self.divergences if not divergence.is_notice]

    @property
    def parted_ever(self) -> list[Divergence]:
        """Those of this attempt, or else those of the last attempt that has some."""
        return next((one.parted for one in (self, *reversed(self.earlier)) if one.parted), [])

    @property
    def ranks_of_parted(self) -> dict[int, RankState]:
        """The ranks of the attempt that `parted_ever` is of."""
        return next((one.ranks for one in (self, *reversed(self.earlier)) if one.parted), self.ranks)

    @property
    def crossed(self) -> list[Divergence]:
        return [divergence for divergence in self.divergences if divergence.is_notice]

    @property
    def exit_code(self) -> int:
        """1 for a divergence, a stall or a silent fault in any attempt; 2 where no rank, or not every one, left a whole trace; else
        0."""
        if self.verdict in (DIVERGED, STALLED) or self.silent or any(one.exit_code == 1 for one in self.earlier):
            return 1
        lacking = not self.ranks or any(rank.state == MISSING or rank.untraced or rank.damage for rank in self.ranks.values())
        return 2 if lacking or self.damage else 0


def compare_run(
    run: RecordedRun,
    *,
    stalled: bool = False,
    aligner: Aligner | None = None,
    root: Path | None = None,
    now: float | None = None,
) -> Comparison:
    """Compares the ranks of a run as far as it is recorded.

    `stalled` says that a rank has waited too long, so that no rank is taken for slow any more. `aligner` may have been fed with
    the run before (see `ddp_audit.compare.live`). `root` is the folder that sites are relative to, by default the traced
    command's. `now`, in seconds since the epoch, dates the waits of a run that is alive.
    """
    for rank in run.meta.get("killed_ranks") or ():
        if isinstance(rank, int) and rank in run.ranks:
            run.ranks[rank].stopped = run.ranks[rank].state == KILLED
            run.ranks[rank].lingers = not (run.ranks[rank].stopped or run.ranks[rank].untraced)
    stalled = stalled or bool(run.meta.get("killed"))  # the launcher kills only what has stalled
    root = root or Path(str(run.meta.get("cwd") or "."))
    if aligner is None:
        aligner = new_aligner(run)
        for rank, rank_run in run.ranks.items():
            aligner.feed(rank, rank_run.events)
        aligner.know_lost(rank for rank, one in run.ranks.items() if one.lost)
    aligner.settle()
    final = {rank for rank, one in run.ranks.items() if not one.untraced} if stalled else ended_ranks(run)
    divergences = find_divergences(run, aligner, final, stalled=stalled)
    explain_left_out(run, divergences)
    notices = Crossed(root).notices(aligner.groups)
    for notice in notices:
        notice.called = run.called
    return Comparison(
        _verdict(run, divergences, stalled),
        run.world_size,
        run.complete,
        divergences + notices,
        silent_faults(run),
        rank_states(run, now),
        waiting=waiting(run),
        damage=run.damage,
    )


def explain_left_out(run: RecordedRun, divergences: Sequence[Divergence]) -> None:
    """Adds to the first divergence what a rank left out before it."""
    text = told(run, divergences[0]) if divergences else ""
    if text:
        divergences[0].explanation += f" {text}"


def new_aligner(run: RecordedRun) -> Aligner:
    return Aligner(range(run.world_size), run.groups, uneven_gather=_uses_nccl(run), called=run.called)


def ended_ranks(run: RecordedRun) -> set[int]:
    return {rank for rank, rank_run in run.ranks.items() if has_ended(rank_run)}


def find_divergences(run: RecordedRun, aligner: Aligner, final: set[int], *, stalled: bool = False) -> list[Divergence]:
    """Mismatches; without one, ranks that wait for each other in a circle; else a rank that is not there."""
    partners = Partners(run)
    found = aligner.mismatches()
    messages = partners.mismatches()
    if found and messages:
        dated = [(aligner.when(one), one) for one in found] + [(time_of(one), one) for one in messages]
        found = [one for _, one in sorted(dated, key=lambda item: item[0])]
    elif not found:
        found = messages
    if not found:
        circle = partners.circle(aligner.groups, aligner.last, stalled=stalled)
        cycle = circle or wait_cycle(aligner.groups, aligner.last, run.ranks, stalled=stalled)
        one = cycle or _not_there(run, aligner, partners, final, stalled)
        found = [] if one is None else [one]
    for divergence in found:
        divergence.called = run.called
        if divergence.message is None:
            divergence.before = aligner.before(divergence.group, divergence.index)
    return found


def _not_there(run: RecordedRun, aligner: Aligner, partners: Partners, final: set[int], stalled: bool) -> Divergence | None:
    """The collective or the message for which a rank does not come, whichever is nearer to the cause."""
    absent = missing(aligner.groups, run.ranks, final, stalled=stalled)
    lone = partners.lone(final, stalled=stalled)
    if absent is None or lone is None:
        return absent or lone
    dated = [(one, when(one)) for one, when in ((absent, aligner.when), (lone, time_of))]
    return min(dated, key=lambda item: (*partners.nearness(r for r, e in item[0].ranks.items() if e is None), item[1]))[0]


def rank_states(run: RecordedRun, now: float | None = None) -> dict[int, RankState]:
    return {
        rank: RankState(
            rank,
            len(rank_run.events),
            _count(rank_run, lambda event: event.op not in POINT_TO_POINT),
            rank_run.state,
            rank_run.code,
            last_text(rank_run),
            standing(rank_run, now),
            exception_text(rank_run) or rank_run.fatal,
            raised_at(rank_run),
            failed_by_itself(rank_run),
            rank_run.untraced,
            rank_run.stopped,
            rank_run.lingers,
            rank_run.damage,
            left_at(rank_run),
            rank_run.seen,
            _count(rank_run, lambda event: event.op == "send"),
            rank_run.since,
        )
        for rank, rank_run in sorted(run.ranks.items())
    }


def _count(run: RankRun, counts: Callable[[Event], bool]) -> int:
    return sum(count for event, count in tally(run.events, COLLECTIVE) if counts(event))


def _verdict(run: RecordedRun, divergences: list[Divergence], stalled: bool) -> str:
    # A rank that is alive and merely not there is a stall, until something says that it never comes.
    waits = [d for d in divergences if d.kind == "missing-rank" and not _lacks_ended(run, d)]
    if len(divergences) > len(waits):
        return DIVERGED
    if stalled:
        return STALLED
    in_order = bool(run.ranks) and run.complete and all(exited_in_order(rank) for rank in run.ranks.values())
    return AGREED if in_order else INCOMPLETE


def _lacks_ended(run: RecordedRun, divergence: Divergence) -> bool:
    """Whether a rank that is missing in a divergence has ended."""
    return any(event is None and has_ended(run.ranks[rank]) for rank, event in divergence.ranks.items() if rank in run.ranks)


def _uses_nccl(run: RecordedRun) -> bool:
    backends = {str(event.detail.get("backend") or "") for rank in run.ranks.values() for event, _ in tally(rank.events, GROUP)}
    return any("nccl" in backend for backend in (*backends, str(run.meta.get("backend") or "")))
