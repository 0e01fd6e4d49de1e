"""What a run comes to: absent ranks and their causes, stalls, rank states, live following, verdicts on findings."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from compare_events import all_reduce, barrier, broadcast, call, exception, forward, rank_run, recorded, site

from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED, RUNNING, WAITING, RankRun, RecordedRun
from ddp_audit.compare.verdict import compare_run
from ddp_audit.events import DDP_BUFFERS, GROUP, STACK, STEP, Event
from ddp_audit.trace.standing import judge as judge_rank

PEER = exception("RuntimeError", "[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:12172")
OWN = exception("ValueError", "no such file\nmore")
A, B = all_reduce(1), barrier(2)


def test_equal_sequences_agree() -> None:
    result = compare_run(recorded(rank_run(0, [A, B]), rank_run(1, [A, B])))
    assert (result.verdict, result.exit_code, result.divergences, result.silent) == ("agreed", 0, [], [])
    assert result.ranks[0].collectives == 2


def test_a_run_that_lives_is_incomplete() -> None:
    run = recorded(rank_run(0, [A, B, A], RUNNING), rank_run(1, [A], RUNNING))
    result = compare_run(run)
    assert (result.verdict, result.exit_code, result.divergences) == ("incomplete", 0, [])


def test_a_slow_rank_is_a_stall_only_when_told() -> None:
    run = recorded(rank_run(0, [A, B], WAITING, waiting=B), rank_run(1, [A], RUNNING))
    assert compare_run(run).verdict == "incomplete"
    result = compare_run(run, stalled=True)
    assert (result.verdict, result.exit_code) == ("stalled", 1)
    assert [(d.kind, d.index, d.ranks) for d in result.divergences] == [("missing-rank", 1, {0: B, 1: None})]
    assert (
        "Rank 1 is running; last recorded: all_reduce of 4 float32 (user call) at train.py:1" in result.divergences[0].explanation
    )


def test_a_mismatch_of_a_stalled_run_is_a_divergence() -> None:
    run = recorded(rank_run(0, [A, B], WAITING, waiting=B), rank_run(1, [A, A], WAITING, waiting=A))
    assert compare_run(run, stalled=True).verdict == "diverged"


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        (rank_run(1, [A], EXITED, 0), "Rank 1 exited with code 0"),
        (rank_run(1, [A], EXITED, 3), "Rank 1 exited with code 3"),
        (rank_run(1, [A, OWN], RAISED, 1), "Rank 1 ended with ValueError: no such file, after all_reduce"),
        (rank_run(1, [A], KILLED, -9), "Rank 1 was killed by signal 9"),
        (rank_run(1, [A], KILLED), "Rank 1 was killed; last"),
    ],
)
def test_a_rank_that_is_gone_is_missing(gone: RankRun, text: str) -> None:
    result = compare_run(recorded(rank_run(0, [A, B], WAITING, waiting=B), gone))
    assert (result.verdict, result.exit_code) == ("diverged", 1)
    assert [(d.kind, d.index) for d in result.divergences] == [("missing-rank", 1)]
    assert text in result.divergences[0].explanation
    assert "barrier, from train.py:2" in result.divergences[0].explanation


def test_a_peer_error_of_the_waiting_rank_shows_who_was_first() -> None:
    """Rank 1 left early; rank 0's collective then failed."""
    result = compare_run(recorded(rank_run(0, [A, B, PEER], RAISED, 1), rank_run(1, [A])))
    assert [d.kind for d in result.divergences] == ["missing-rank"]
    assert result.divergences[0].odd == []


@pytest.mark.parametrize("killed", [rank_run(1, [A], KILLED, -15), rank_run(1, [A], KILLED), rank_run(1, [A, PEER], RAISED, 1)])
def test_a_rank_that_was_stopped_since_another_failed_is_no_divergence(killed: RankRun) -> None:
    """Rank 0 failed by itself one collective ahead: the launcher stopped rank 1, or its next collective broke."""
    result = compare_run(recorded(rank_run(0, [A, B, OWN], RAISED, 1), killed))
    assert (result.verdict, result.divergences, result.exit_code) == ("incomplete", [], 0)


def test_all_ranks_stopped_from_outside_is_no_divergence() -> None:
    result = compare_run(recorded(rank_run(0, [A, B], KILLED), rank_run(1, [A], KILLED)))
    assert (result.verdict, result.divergences) == ("incomplete", [])
    interrupt = exception("KeyboardInterrupt", "")
    result = compare_run(recorded(rank_run(0, [A, B, interrupt], RAISED, 1), rank_run(1, [A, interrupt], RAISED, 1)))
    assert result.divergences == []
    # The same after a stall was seen, before the launcher killed them.
    result = compare_run(recorded(rank_run(0, [A, B], KILLED, waiting=B), rank_run(1, [A], KILLED)), stalled=True)
    assert [d.kind for d in result.divergences] == ["missing-rank"]


def test_an_error_on_all_ranks_alike_is_no_divergence() -> None:
    result = compare_run(recorded(rank_run(0, [A, OWN], RAISED, 1), rank_run(1, [A, OWN], RAISED, 1)))
    assert (result.verdict, result.divergences) == ("incomplete", [])


def test_more_in_a_run_that_ended_in_order_is_extra() -> None:
    more = broadcast(9)
    result = compare_run(recorded(rank_run(0, [A, more]), rank_run(1, [A]), rank_run(2, [A])))
    assert [(d.kind, d.index, d.odd) for d in result.divergences] == [("extra", 1, [0])]
    assert result.verdict == "diverged"


def test_a_rank_without_trace() -> None:
    run = recorded(rank_run(0, [A, B]), RankRun(1, state=MISSING), complete=False)
    result = compare_run(run)
    assert (result.verdict, result.divergences, result.exit_code) == ("incomplete", [], 2)
    assert result.ranks[1].text == "left no trace"
    assert compare_run(RecordedRun(0)).exit_code == 2


def test_a_rank_that_is_gone_is_missing_once_though_it_is_in_many_groups() -> None:
    sub = all_reduce(5, group="g", time=3.0)
    late = all_reduce(6, time=4.0)
    run = recorded(rank_run(0, [A, sub, late], WAITING, waiting=late), rank_run(1, [A], KILLED, -9), g=(0, 1))
    assert [(d.group, d.kind) for d in compare_run(run).divergences] == [("g", "missing-rank")]


def test_the_rank_missing_among_many_is_odd() -> None:
    ranks = [rank_run(r, [A, B], WAITING, waiting=B) for r in range(4)]
    ranks[2] = rank_run(2, [A], EXITED, 0)
    found = compare_run(recorded(*ranks)).divergences[0]
    assert (found.odd, found.ranks[2]) == ([2], None)
    assert found.explanation.startswith("Ranks 0, 1 and 3 are in a barrier")


def test_ranks_that_wait_for_each_other_in_two_groups() -> None:
    x, y = all_reduce(7, group="x"), all_reduce(8, group="y")
    run = recorded(rank_run(0, [A, x], WAITING, waiting=x), rank_run(1, [A, y], WAITING, waiting=y), x=(0, 1), y=(0, 1))
    found = compare_run(run)
    assert [(d.kind, d.group, d.index) for d in found.divergences] == [("group", "x", 0)]
    assert found.verdict == "diverged"
    assert "rank 1 is in an all_reduce of 4 float32 (sum), from train.py:8 on group y" in found.divergences[0].explanation
    run = recorded(rank_run(0, [A, x], WAITING, waiting=x), rank_run(1, [A], RUNNING), x=(0, 1), y=(0, 1))
    assert compare_run(run).divergences == []


def test_three_ranks_in_a_ring_of_groups() -> None:
    def waits(rank: int, group: str) -> RankRun:
        event = all_reduce(rank + 1, group=group)
        return rank_run(rank, [event], WAITING, waiting=event)

    run = recorded(waits(0, "ab"), waits(1, "bc"), waits(2, "ca"), ab=(0, 1), bc=(1, 2), ca=(0, 2))
    found = compare_run(run).divergences
    assert [d.kind for d in found] == ["group"] and set(found[0].ranks) == {0, 1, 2}


def test_uneven_all_gather_under_nccl() -> None:
    def gathers(backend: str) -> RecordedRun:
        made = Event(GROUP, detail={"action": "init", "backend": backend})
        return recorded(*(rank_run(r, [made, call("all_gather", numel=r + 1, dtype="float32")]) for r in range(2)))

    assert compare_run(gathers("cpu:gloo,cuda:nccl")).divergences == []
    assert [d.kind for d in compare_run(gathers("gloo")).divergences] == ["size"]


def test_silent_faults_and_notices_and_the_exit_code() -> None:
    local = Event(STEP, detail={"unreduced": True})
    result = compare_run(recorded(rank_run(0, [A, local]), rank_run(1, [A, local])))
    assert (result.verdict, result.exit_code) == ("agreed", 1)
    buffers = broadcast(5, origin=DDP_BUFFERS)
    result = compare_run(recorded(rank_run(0, [forward(False), buffers]), rank_run(1, [forward(True), buffers])))
    assert (result.verdict, result.exit_code, len(result.crossed), result.parted) == ("agreed", 0, 1, [])


def test_the_source_decides_between_a_branch_and_a_crossing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("if rank == 0:\n    f(a)\n    f(b)\nelse:\n    f(a)\n    f(b)\nf(c)\n")

    def crossed(first: list[int], second: list[int]) -> int:
        runs = (rank_run(r, [all_reduce(line) for line in lines]) for r, lines in enumerate((first, second)))
        return len(compare_run(recorded(*runs), root=tmp_path).crossed)

    assert crossed([2, 3], [5, 6]) == 0
    assert crossed([2, 3], [6, 5]) == 1, "f(a) meets f(b)"
    assert crossed([2], [7]) == 1


def test_waiting_is_told_with_its_time() -> None:
    buffers = broadcast(224, origin=DDP_BUFFERS, time=100.0)
    run = recorded(rank_run(0, [buffers], WAITING, waiting=buffers), rank_run(1, [], RUNNING))
    text = compare_run(run, now=103.1).ranks[0].text
    assert text == "has been waiting in broadcast of 4 float32 (DDP buffer broadcast) at train.py:224 for 3.1 s"


# Live


def test_a_rank_outside_of_collectives_is_told_where_it_stands() -> None:
    stands = Event(STACK, site=site(61), stack=(site(61), site(80)))
    run = recorded(rank_run(0, [all_reduce(7)], WAITING), rank_run(1, [all_reduce(5), stands], RUNNING))
    now = time.time()
    judge_rank(run.ranks[1], [], gone=False, exited=False, raised=False, heartbeat=now)
    text = compare_run(run, stalled=True).ranks[1].text
    assert text.startswith("is at train.py:61, in no collective, after all_reduce")
    judge_rank(run.ranks[1], [], gone=True, exited=False, raised=False, heartbeat=now)
    assert compare_run(run, stalled=True).ranks[1].text.startswith("was killed at train.py:61, in no collective, after all_reduce")


def test_a_process_that_does_not_answer_is_not_said_to_wait() -> None:
    stopped = time.time() - 4
    run = recorded(rank_run(0, [all_reduce(7)], WAITING), rank_run(1, [all_reduce(5, time=stopped)], RUNNING))
    judge_rank(run.ranks[1], run.ranks[1].events, gone=False, exited=False, raised=False, heartbeat=stopped)
    text = compare_run(run, stalled=True).ranks[1].text
    assert text.startswith("has not answered for 4.") and "last recorded: in or just after all_reduce" in text


def test_live_following_reports_a_mismatch_once() -> None:
    live = LiveComparison(patience=0.0)
    zero, one = rank_run(0, [], RUNNING), rank_run(1, [], RUNNING)
    run = recorded(zero, one, complete=False)
    assert live.update(run) == []
    zero.events += [A, B]
    one.events += [A]
    assert live.update(run) == []
    one.events += [A]
    found = live.update(run)
    assert [(d.kind, d.index) for d in found] == [("operation", 1)]
    assert [index for index, _ in found[0].before] == [0]
    assert live.update(run) == []
    assert live.finish(run).verdict == "diverged"


def test_live_following_waits_for_the_other_ranks_before_it_names_the_odd_one() -> None:
    live = LiveComparison(patience=60.0)
    ranks = [rank_run(r, [A if r else B], RUNNING) for r in range(3)]
    ranks[2].events.clear()
    run = recorded(*ranks, complete=False)
    assert live.update(run) == []
    ranks[2].events.append(A)
    assert [d.odd for d in live.update(run)] == [[0]]


def test_live_following_believes_an_end_only_after_a_while() -> None:
    live = LiveComparison(patience=0.05)
    one = rank_run(1, [A])
    run = recorded(rank_run(0, [A, B], RUNNING), one, complete=False)
    assert live.update(run) == []
    time.sleep(0.06)
    assert live.update(run) == []  # seen for the first time; it must last
    time.sleep(0.06)
    assert [d.kind for d in live.update(run)] == ["missing-rank"]


def test_live_following_of_a_run_whose_ranks_are_not_known_yet() -> None:
    live = LiveComparison(patience=0.0)
    run = RecordedRun(0)
    assert live.update(run) == []
    run.world_size = 2
    run.ranks[0] = rank_run(0, [A], RUNNING)
    assert live.update(run) == []
    run.ranks[1] = rank_run(1, [B], RUNNING)
    run.groups["default"] = (0, 1)
    assert [d.kind for d in live.update(run)] == ["operation"]


def test_live_following_starts_again_with_a_restarted_worker() -> None:
    live = LiveComparison(patience=0.0)
    zero, one = rank_run(0, [A, B], RUNNING), rank_run(1, [A, A], RUNNING)
    run = recorded(zero, one, complete=False)
    assert len(live.update(run)) == 1
    zero.events[:], one.events[:] = [A], [A]
    assert live.update(run) == []
    assert live.finish(run).divergences == []


def test_a_rank_that_ended_before_a_restart_is_not_missing_after_it() -> None:
    live = LiveComparison(patience=0.0)
    run = recorded(rank_run(0, [A, A], WAITING), rank_run(1, [A], EXITED), complete=False)
    assert [found.kind for found in live.update(run)] == ["missing-rank"]
    run.ranks = {0: rank_run(0, [A, B, A], WAITING), 1: rank_run(1, [A, B], RUNNING)}
    assert live.update(run) == []
    run.ranks[1].state = EXITED
    assert [found.kind for found in live.update(run)] == ["missing-rank"]


def test_live_and_whole_comparison_say_the_same() -> None:
    zero, one = [A, B, A, all_reduce(3, group="g")], [A, B, all_reduce(1, 8), all_reduce(3, 5, group="g")]
    live = LiveComparison(patience=0.0)
    growing = recorded(rank_run(0, [], RUNNING), rank_run(1, [], RUNNING), complete=False, g=(0, 1))
    for a, b in zip(zero, one, strict=True):
        growing.ranks[0].events.append(a)
        live.update(growing)
        growing.ranks[1].events.append(b)
        live.update(growing)
    assert live.finish(growing).divergences == compare_run(growing).divergences
    assert next(iter(compare_run(growing).parted)) == compare_run(growing).divergences[0]
