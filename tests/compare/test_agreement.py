"""How far a prediction and a record agree: to the end, until something that is not known, or not, by how each rank ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compare_events import all_reduce, barrier, broadcast, exception, rank_run, recorded, site

from ddp_audit.compare.endings import ABORTS, EXITS, FAILS, OPEN, RETURNS, STOPPED, UNKNOWN, WAITS, End, end_of
from ddp_audit.compare.predicted import OUTCOME, AgreedToEnd, AgreedUntil, Agreement, Disagrees, hold_against
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED, RUNNING, WAITING, RankRun, RecordedRun
from ddp_audit.events import Event

A, B, C = all_reduce(1), all_reduce(2), barrier(3)
BOOM = exception("ValueError", "boom", site(9))
PEER = exception("RuntimeError", "Connection closed by peer [127.0.0.1]:12172")
TIMEOUT = exception("RuntimeError", "Timed out waiting 1800000ms for recv operation to complete")
CTRL_C = exception("KeyboardInterrupt", "", site(4))
RETURN = End(RETURNS)
Ranks = dict[int, tuple[list[Event], End]]


def done(rank: int, *events: Event) -> RankRun:
    return rank_run(rank, list(events))


def failed(rank: int, *events: Event) -> RankRun:
    return rank_run(rank, list(events), RAISED, 1)


def stopped(rank: int, *events: Event, waiting: Event | None = None) -> RankRun:
    return rank_run(rank, list(events), KILLED, -15, waiting=waiting)


def against(predicted: Ranks, *ranks: RankRun, killed: bool = False, unknown: str = "") -> Agreement:
    run = recorded(*ranks)
    run.meta["killed"] = killed
    sequences = {rank: events for rank, (events, _) in predicted.items()}
    return hold_against(sequences, run, ends={rank: end for rank, (_, end) in predicted.items()}, unknown=unknown)


def both(events: list[Event], end: End = RETURN) -> Ranks:
    return {0: (events, end), 1: (events, end)}


WAIT = End(WAITS, "barrier at train.py:3")
HANG: Ranks = {0: ([A, B, C], WAIT), 1: ([A, B], RETURN)}
FAIL: Ranks = {0: ([A, B, C], WAIT), 1: ([A, B], End(FAILS, "ValueError: boom", "ValueError"))}
CUT: Ranks = both([A, B], End(UNKNOWN, "it calls a function that is not followed"))


@pytest.mark.parametrize(
    ("predicted", "ranks", "killed"),
    [
        (both([A, B]), [done(0, A, B), done(1, A, B)], False),
        (HANG, [stopped(0, A, B, C, waiting=C), done(1, A, B)], True),  # ended by --on-stall kill
        (HANG, [failed(0, A, B, C, PEER), done(1, A, B)], False),  # the rank that left broke the connection
        (HANG, [failed(0, A, B, C, TIMEOUT), done(1, A, B)], False),
        (FAIL, [failed(0, A, B, C, PEER), failed(1, A, B, BOOM)], False),
        (FAIL, [stopped(0, A, B, C, waiting=C), failed(1, A, B, BOOM)], False),  # by the launcher, as the other had failed
        (both([A], End(FAILS, "ValueError: boom", "ValueError")), [failed(0, A, BOOM), failed(1, A, BOOM)], False),
        (both([A], End(EXITS, code=3)), [rank_run(0, [A], EXITED, 3), rank_run(1, [A], EXITED, 3)], False),
        (both([A, B], End(ABORTS, "")), [rank_run(0, [A, B], KILLED, -6, waiting=B), failed(1, A, B, PEER)], False),
        (both([]), [done(0), done(1)], False),
    ],
)
def test_to_the_end(predicted: Ranks, ranks: list[RankRun], killed: bool) -> None:
    result = against(predicted, *ranks, killed=killed).result
    assert isinstance(result, AgreedToEnd), result


@pytest.mark.parametrize(
    ("predicted", "ranks", "killed", "why"),
    [
        (CUT, [done(0, A, B, C), done(1, A, B, C)], False, "it calls a function that is not followed"),
        (CUT, [done(0, A, B), done(1, A, B)], False, "it calls a function that is not followed"),  # and is not called whole
        (CUT, [failed(0, A, B, PEER), failed(1, A, B, BOOM)], False, "it calls a function that is not followed"),
        (both([A, B, C]), [stopped(0, A), stopped(1, A, B)], False, "rank 0 was ended from outside"),
        (both([A, B]), [failed(0, A, CTRL_C), failed(1, A, CTRL_C)], False, "rank 0 was ended from outside"),
        (both([A, B]), [done(0, A, B), rank_run(1, [A], MISSING)], False, "rank 1 left no trace of its end"),
        (both([A, B]), [done(0, A, B), rank_run(1, [A], RUNNING, untraced=True)], False, "rank 1 left no trace of its end"),
    ],
)
def test_until_something_that_is_not_known(predicted: Ranks, ranks: list[RankRun], killed: bool, why: str) -> None:
    result = against(predicted, *ranks, killed=killed).result
    if why == "rank 1":  # its waiting partner got an error too: neither is known to have failed by itself
        assert isinstance(result, Disagrees)
        return
    assert isinstance(result, AgreedUntil), result
    assert result.why == why


@pytest.mark.parametrize(
    ("predicted", "ranks", "killed", "kind", "where"),
    [
        # a hang that did not happen: the run went past the collective in which it was to wait, or ended there
        (HANG, [done(0, A, B, C), done(1, A, B, C)], False, OUTCOME, "Rank 0 completed, and was predicted to wait forever in barrier"),
        (HANG, [done(0, A, B, C), done(1, A, B)], False, OUTCOME, "Rank 0 completed, and was predicted to wait forever in barrier"),
        (HANG, [done(0, A, B, C, A), done(1, A, B)], False, OUTCOME, "Rank 0 completed, and was predicted to wait forever in"),
        (HANG, [failed(0, A, B, C, BOOM), done(1, A, B)], False, OUTCOME, "Rank 0 failed: ValueError: boom (train.py:9), and was"),
        # completion that did not happen
        (both([A, B]), [stopped(0, A, B, waiting=B), done(1, A)], True, OUTCOME, "Rank 0 waited in all_reduce of 4 float32 (user"),
        (both([A, B]), [failed(0, A, PEER), failed(1, A, BOOM)], False, OUTCOME, "Rank 1 failed: ValueError: boom (train.py:9), and"),
        (both([A]), [done(0, A), rank_run(1, [A], KILLED, -9)], False, OUTCOME, "Rank 1 was killed by signal 9, and was predicted to"),
        (both([A]), [done(0, A), rank_run(1, [A], EXITED, 3)], False, OUTCOME, "Rank 1 exited with code 3, and was predicted to"),
        (both([A]), [failed(0, A, BOOM), failed(1, A, BOOM)], False, OUTCOME, "Ranks 0 and 1 failed: ValueError: boom (train.py:9)"),
        # an exception that did not happen, or another one
        (FAIL, [done(0, A, B), done(1, A, B)], False, OUTCOME, "Rank 0 completed, and was predicted to wait forever in barrier"),
        (FAIL, [done(0, A, B, C), done(1, A, B, C)], False, OUTCOME, "Rank 0 completed, and was predicted to wait forever in"),
        (both([A], End(FAILS, "KeyError: 'lr'", "KeyError")), [done(0, A), done(1, A)], False, OUTCOME,
         "Ranks 0 and 1 completed, and were predicted to fail with KeyError: 'lr'."),
        (both([A], End(FAILS, "KeyError", "KeyError")), [failed(0, A, BOOM), failed(1, A, BOOM)], False, OUTCOME, "Ranks 0 and 1 failed"),
        (both([A], End(EXITS, code=3)), [done(0, A), done(1, A)], False, OUTCOME, "Ranks 0 and 1 completed, and"),
        # another collective, and one more or less
        (both([A, B]), [done(0, A, C), done(1, A, C)], False, "op", "Collective 1 of rank 0: predicted all_reduce of 4 float32"),
        (both([A]), [done(0, A, B), done(1, A, B)], False, "length", "Collective 1 of rank 0: predicted no further one, recorded"),
        (both([A, B]), [done(0, A), done(1, A)], False, "length", "Collective 1 of rank 0: predicted all_reduce of 4 float32"),
        (CUT, [done(0, A), done(1, A)], False, "length", "Collective 1 of rank 0"),  # it ended before what was predicted
        (CUT, [failed(0, A, PEER), failed(1, A, BOOM)], False, "length", "Collective 1 of rank 1"),
        # the wait is real, and is another one
        (HANG, [stopped(0, A, B, waiting=B), stopped(1, A, waiting=A)], True, OUTCOME, "Rank 1 waited in all_reduce of 4 float32"),
        (HANG, [stopped(0, A, B, waiting=B), done(1, A, B)], True, OUTCOME, "Rank 0 waited in all_reduce of 4 float32 (user call) at"),
        (HANG, [stopped(0, A, B, waiting=B), failed(1, A, B, PEER)], False, OUTCOME, "Rank 1 waited, and was predicted to complete."),
    ],
)  # fmt: skip
def test_a_prediction_that_ends_otherwise_disagrees(
    predicted: Ranks, ranks: list[RankRun], killed: bool, kind: str, where: str
) -> None:
    agreement = against(predicted, *ranks, killed=killed)
    result = agreement.result
    assert isinstance(result, Disagrees), result
    assert (result.kind, where in result.where) == (kind, True), result
    assert (result.kind == OUTCOME) is (result.difference is None)


def test_what_is_uncertain_is_never_whole() -> None:
    run = recorded(done(0, A, B, C), done(1, A, B, C))
    cut_short = hold_against({0: [A, B, C], 1: [A, B, C]}, run, certain={0: 2}, unknown="a loop ran 3 times")
    assert cut_short.result == AgreedUntil("a loop ran 3 times")
    assert (cut_short.compared, cut_short.beyond) == ({0: 2, 1: 3}, {0: 1, 1: 0})
    opaque = hold_against({0: [A, B, C]}, run, unknown="a module is not known")
    assert opaque.result == AgreedUntil("a module is not known")
    other = hold_against({0: [A, broadcast(5)], 1: [A, B]}, run, certain={0: 1}, unknown="x")
    assert isinstance(other.result, Disagrees)  # of the rank that is known to its end
    assert hold_against({}, run).result == AgreedUntil("no rank left a trace")
    assert hold_against({5: [A]}, run).result == AgreedUntil("no rank left a trace")


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (done(0, A), RETURNS),
        (rank_run(0, [A], EXITED, 3), EXITS),
        (failed(0, A, BOOM), FAILS),
        (failed(0, A, PEER), WAITS),
        (failed(0, A, CTRL_C), STOPPED),
        (stopped(0, A), STOPPED),
        (rank_run(0, [A], KILLED, -9), "killed"),
        (rank_run(0, [A], KILLED, -6, waiting=A), ABORTS),
        (rank_run(0, [A], WAITING, waiting=A), OPEN),
        (rank_run(0, [A], RUNNING), OPEN),
        (rank_run(0, [], MISSING), OPEN),
    ],
)
def test_how_a_rank_ended(one: RankRun, kind: str) -> None:
    assert end_of(0, recorded(one)).kind == kind


def test_a_rank_stopped_because_of_another_did_not_wait_by_itself() -> None:
    waits = stopped(0, A, B, waiting=B)
    assert end_of(0, recorded(waits, failed(1, A, BOOM))).kind == STOPPED
    assert end_of(0, recorded(waits, done(1, A))).kind == WAITS
    assert end_of(0, recorded(waits, stopped(1, A))).kind == STOPPED
    killed = recorded(waits, stopped(1, A))
    killed.meta["killed"] = True
    assert end_of(0, killed).kind == WAITS
    assert end_of(3, RecordedRun(2)).kind == OPEN
    assert replace(RETURN).text == ""
