"""The words of a report for ranks that have left: how they failed, and what stands in the place of a collective of theirs."""

from __future__ import annotations

from collections.abc import Mapping

from ddp_audit.compare.explain import code_text, rank_list
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED
from ddp_audit.compare.verdict import RankState

_MOST_FAILED = 2  # ways to fail that a headline names


def failed_text(states: Mapping[int, RankState]) -> str:
    """`rank 1 failed: RuntimeError: boom (train.py:8)`, of the ranks that failed by themselves; empty where none did."""
    how: dict[str, list[int]] = {}
    for rank, state in sorted(states.items()):
        if state.failed:
            how.setdefault(_how_failed(state), []).append(rank)
    return "; ".join(f"{rank_list(ranks)} {text}" for text, ranks in list(how.items())[:_MOST_FAILED])


def _how_failed(state: RankState) -> str:
    if state.state == RAISED:
        at = f" ({state.raised_at})" if state.raised_at is not None else ""
        return f"failed: {state.error or 'an exception'}{at}"
    where = f" ({state.left_at})" if state.left_at else f" (last seen at {state.last_seen})" if state.last_seen else ""
    return _how_left(state) + where


def _how_left(state: RankState) -> str:
    if state.stopped:
        return "was ended by ddp-audit"
    if state.state == KILLED and state.error:
        return f"crashed: {state.error}"
    return f"{'was killed' if state.state == KILLED else 'exited'}{code_text(state.code)}"


def nothing_lines(state: RankState | None) -> list[str]:
    """What is said of a rank that has no part in a collective. Places begin with @."""
    if state is None or state.state == MISSING:
        return ["nothing: left no trace"]
    if state.state == RAISED:
        at = [f"@{state.raised_at}"] if state.raised_at is not None else []
        return ["nothing: ended with", state.error or "an exception", *at]
    if state.state not in (EXITED, KILLED):
        return ["nothing yet", f"last: {state.last}"]
    head = f"nothing: {_how_left(state)}"
    if state.left_at is not None:
        return [head, f"@{state.left_at}"]
    return [head] if state.last_seen is None else [head, "last seen at", f"@{state.last_seen}"]
