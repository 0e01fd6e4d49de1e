"""Which ranks will issue nothing more, and whether their absence is a cause or a consequence.

When one rank fails, the launcher stops the others, and a peer's collective fails with a network error. Those ranks too have
shorter sequences than some other rank, but only because they were stopped: that is not a divergence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ddp_audit.compare.run import EXITED, KILLED, RAISED, RankRun, last_of
from ddp_audit.events import EXCEPTION
from ddp_audit.lazy_regex import lazy_compile

# Signals that a launcher or a user sends to stop a healthy process, as exit codes of subprocess and of a shell.
_STOPPED = frozenset({None, -15, -2, 143, 130})

# Texts and types of the errors that a rank gets because another one is gone (gloo 2.13 from runs; NCCL from its sources).
_PEER = lazy_compile(
    r"closed by peer|reset by peer|read error|broken pipe|timed out waiting|application timeout|socket ?timeout|"
    r"monitoredbarrier|nccl|watchdog|remote process|gloo.*(timeout|timed out)|wait timeout|unbound_buffer|pair\.cc",
    re.IGNORECASE,
)
_PEER_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError")
_INTERRUPTS = ("KeyboardInterrupt", "SignalException")


def has_ended(run: RankRun) -> bool:
    """Whether a rank will issue nothing more."""
    return run.state in (EXITED, RAISED, KILLED)


def exited_in_order(run: RankRun) -> bool:
    return run.state == EXITED and run.code in (0, None)


def failed_by_peer(run: RankRun) -> bool:
    """Whether the exception that ended a rank tells of another rank's end or of a timeout."""
    kind, text = _error(run)
    return kind in _PEER_TYPES or bool(_PEER.search(text))


def was_stopped(run: RankRun) -> bool:
    """Whether a rank was ended from outside: by a launcher's signal or the user's interrupt.

    A fatal signal in a collective may be the answer of a backend to what another rank did (gloo aborts at sizes that differ).
    """
    of_its_own = run.fatal and run.waiting is None
    return (run.state == KILLED and run.code in _STOPPED and not of_its_own) or _error(run)[0] in _INTERRUPTS


def _error(run: RankRun) -> tuple[str, str]:
    """Type (without its module) and text of the exception that ended a rank; empty where none did."""
    if run.state != RAISED:
        return "", ""
    last = last_of(run.events, EXCEPTION)
    if last is None:
        return "", ""
    return str(last.detail.get("type", "")).rsplit(".", 1)[-1], str(last.detail.get("text", ""))


def failed_by_itself(run: RankRun) -> bool:
    """Whether a rank ended by an error of its own: an exception, an exit code, or a signal that no launcher sends."""
    if run.state == RAISED:
        return not failed_by_peer(run) and not was_stopped(run)
    if run.state == KILLED:
        return not was_stopped(run)
    return run.state == EXITED and run.code not in (0, None)


def absent_for_cause(holders: Collection[int], lacking: Collection[int], runs: Mapping[int, RankRun], stalled: bool) -> list[int]:
    """Those of `lacking` whose absence from a collective of `holders` is a divergence; empty where it is a consequence.

    A rank that left by its own doing (in order, or with an error of its own) is missing. A rank that was stopped from outside
    is missing only where nothing else explains it: some rank still waits, or got a network error, and no rank failed by itself.
    """
    by_itself = [rank for rank in lacking if rank in runs and (runs[rank].state == EXITED or failed_by_itself(runs[rank]))]
    if by_itself:
        return sorted(by_itself)
    if any(failed_by_itself(run) for run in runs.values()):
        return []
    if stalled or any(not has_ended(runs[rank]) or failed_by_peer(runs[rank]) for rank in holders if rank in runs):
        return sorted(lacking)
    return []
