"""Which messages meet, and what is said of those that do not: recorded shapes."""

from __future__ import annotations

from typing import Any

import pytest
from compare_events import all_reduce, barrier, call, exception, rank_run, recorded

from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.messages import Messages, difference, messages_of
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED, RUNNING, WAITING, RecordedRun
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import Comparison, compare_run
from ddp_audit.events import GROUP, Event
from ddp_audit.report.trace_json import as_object
from ddp_audit.report.trace_text import render

DONE = 2.0


def init(backend: str = "gloo") -> Event:
    return Event(GROUP, detail={"action": "init", "name": "default", "ranks": [], "backend": backend})


def message(op: str, peer: int | None, line: int, numel: int = 8, *, done: bool = True, tag: int = 0, **fields: Any) -> Event:
    detail = {"peer": peer, "tag": tag, "async": op.startswith("i"), "done": DONE if done else None, "thread": 0, "raised": False}
    detail.update({key: fields.pop(key) for key in ("thread",) if key in fields})
    return call(op.removeprefix("i"), line, numel=numel, time=float(line), detail=detail, **{"dtype": "float32", **fields})


def send(peer: int, line: int, numel: int = 8, **fields: Any) -> Event:
    return message("send", peer, line, numel, **fields)


def recv(peer: int | None, line: int, numel: int = 8, **fields: Any) -> Event:
    return message("recv", peer, line, numel, **fields)


def isend(peer: int, line: int, numel: int = 8, **fields: Any) -> Event:
    return message("isend", peer, line, numel, **fields)


def irecv(peer: int | None, line: int, numel: int = 8, **fields: Any) -> Event:
    return message("irecv", peer, line, numel, **fields)


def ranks_of(*sequences: list[Event], state: str = "exited", backend: str = "gloo", **fields: Any) -> RecordedRun:
    """A run. In any other state than exited, a rank waits in its last event where that has not returned."""
    runs = []
    for rank, events in enumerate(sequences):
        last = events[-1] if events else None
        waits = last if state != "exited" and last is not None and last.detail.get("done") is None else None
        runs.append(rank_run(rank, [init(backend), *events], state, waiting=waits, **fields))
    return recorded(*runs)


def only(comparison: Comparison) -> Divergence:
    (found,) = comparison.parted
    return found


def agrees(run: RecordedRun, **options: Any) -> None:
    comparison = compare_run(run, **options)
    assert comparison.parted == []


def stuck(*sequences: list[Event], **fields: Any) -> Divergence:
    """The only divergence of a run that was killed because it stalled."""
    return only(compare_run(ranks_of(*sequences, state=KILLED, code=-9, **fields), stalled=True))


# ---- what is right


def test_a_pipeline_of_micro_batches_agrees() -> None:
    first = [e for m in range(6) for e in (isend(1, 10, 8 + m), irecv(1, 11, 8 + m))]
    middle = [e for m in range(6) for e in (irecv(0, 20, 8 + m), isend(2, 21, 8), irecv(2, 22, 8), isend(0, 23, 8 + m))]
    last = [e for m in range(6) for e in (recv(1, 30), send(1, 31))]
    agrees(ranks_of(first, middle, last))
    agrees(ranks_of(first, middle, last), stalled=True)


def test_a_ring_exchange_agrees() -> None:
    for backend in ("gloo", "nccl"):
        agrees(ranks_of(*([isend((r + 1) % 3, 10), irecv((r - 1) % 3, 11), barrier(12)] for r in range(3)), backend=backend))


def test_an_isend_that_nobody_waits_for_is_done_when_it_is_received() -> None:
    sent = isend(1, 10, done=False)
    run = ranks_of([sent, barrier(12)], [recv(0, 20), barrier(22)])
    agrees(run)
    assert messages_of(run).is_met(0, sent, 1)


def test_messages_of_several_tags_meet_by_tag_on_gloo_and_are_left_alone_on_nccl() -> None:
    sends = [send(1, 10, 4, tag=1), send(1, 11, 5, tag=2)]
    receives = [irecv(0, 20, 5, tag=2), irecv(0, 21, 4, tag=1)]
    agrees(ranks_of(sends, receives))
    agrees(ranks_of(sends, receives, backend="nccl"))
    agrees(ranks_of([send(1, 10, tag=1)], [recv(0, 20, tag=7)], backend="nccl"))  # NCCL has no tags
    assert only(compare_run(ranks_of([send(1, 10, tag=1)], [irecv(0, 20, tag=7)]))).kind == "extra"


def test_a_receive_from_any_source_leaves_the_pairing_unknown() -> None:
    worker = [send(0, 10, 4)]
    agrees(ranks_of([recv(None, 1, 4), recv(None, 2, 4)], worker, worker))
    agrees(ranks_of([recv(None, 1, 4), recv(1, 2, 99, done=False)], worker, worker))
    found = only(compare_run(ranks_of([recv(None, 1, 4), recv(1, 2, 4, tag=3)], worker, [send(0, 30, 5, tag=3), *worker])))
    assert found.kind == "extra"  # of another tag: rank 2 sends what nobody receives


def test_what_is_in_flight_is_no_divergence() -> None:
    agrees(ranks_of([send(1, 10), send(1, 11, done=False)], [recv(0, 20)], state=WAITING))
    agrees(ranks_of([irecv(1, 10, done=False)], [irecv(0, 20, done=False)], state=WAITING))  # and the ranks compute


def test_bytes_may_stand_for_something_else() -> None:
    assert difference((8, "float32"), (32, "uint8")) is None
    assert difference((8, "float32"), (None, "float32")) is None
    assert difference((8, "float32"), (33, "uint8")) == "size"
    assert difference((8, "float32"), (4, "float64")) == "dtype"


def test_in_a_batch_of_nccl_the_order_is_free() -> None:
    sizes = [3, 5, 7]
    sends = [isend(1, 10, n) for n in sizes]
    receives = [irecv(0, 20, n) for n in sizes[::-1]]
    agrees(ranks_of(sends, receives, backend="nccl"))
    assert only(compare_run(ranks_of(sends, receives))).kind == "size"  # gloo takes them in order
    assert only(compare_run(ranks_of(sends, [*receives[:-1], irecv(0, 20, 4)], backend="nccl"))).kind == "size"


def test_threads_of_a_rank_may_be_recorded_in_another_order() -> None:
    agrees(ranks_of([send(1, 10, 4, thread=1), send(1, 11, 5, thread=2)], [irecv(0, 20, 5), irecv(0, 20, 4)]))


def test_groups_that_are_initialised_again_begin_anew() -> None:
    sent = [isend(1, 10, 4, done=False), init(), send(1, 11, 5)]
    agrees(ranks_of([*sent, init()], [init(), recv(0, 20, 5)], state=RUNNING))
    found = only(compare_run(ranks_of(sent, [init(), recv(0, 20, 6)])))
    assert (found.kind, found.index) == ("size", 0)


def test_a_rank_without_trace_is_not_blamed() -> None:
    run = ranks_of([recv(1, 10, done=False)], [], state=KILLED)
    run.ranks[1].state = MISSING
    assert all(found.message is None for found in compare_run(run, stalled=True).parted)


def test_a_rank_whose_tracer_has_ended_may_have_gone_on() -> None:
    run = ranks_of([recv(1, 10, done=False)], [recv(0, 20, done=False)], state=KILLED)
    run.ranks[1].untraced, run.ranks[1].waiting = True, None
    agrees(run, stalled=True)


# ---- ends that do not fit


@pytest.mark.parametrize(
    ("received", "kind", "says"),
    [
        (irecv(0, 20, 3), "size", "aborts the receiver"),
        (irecv(0, 20, 99), "size", "nobody notices"),
        (irecv(0, 20, 8, dtype="int32"), "dtype", "wrong numbers"),
        (irecv(0, 20, 3, dtype="int64"), "size", "do not fit"),
    ],
)
def test_ends_that_do_not_fit(received: Event, kind: str, says: str) -> None:
    first, second = [send(1, 9, 2), send(1, 10)], [recv(0, 19, 2), received]
    comparison = compare_run(ranks_of(first, second))
    found = only(comparison)
    assert (found.kind, found.index, found.message, found.odd, found.positions) == (kind, 1, (0, 1), [], {0: 2, 1: 2})
    assert (comparison.verdict, comparison.exit_code) == ("diverged", 1)
    assert says in found.explanation and "train.py:10" in found.explanation and "train.py:20" in found.explanation
    text = render(comparison)
    assert "Message 1 from rank 0 to rank 1 in the default group: different" in text and "isend" not in text
    assert "= 0 " in text  # the message before it, which fits
    (told,) = as_object(comparison)["divergences"]
    assert (told["group"], told["index"], told["message"]) == ("default", 1, {"from": 0, "to": 1})
    assert (told["ranks"]["0"]["peer"], told["ranks"]["1"]["peer"], told["ranks"]["1"]["async"]) == (1, 0, True)


def test_the_earlier_of_a_message_and_a_collective_comes_first() -> None:
    for line, kinds in ((5, ["size", "operation"]), (15, ["operation", "size"])):
        message_ends = (send(1, line), irecv(0, line, 3))
        ranks = ([message_ends[0], all_reduce(7, time=7.0)], [message_ends[1], barrier(8, time=8.0)])
        assert [found.kind for found in compare_run(ranks_of(*ranks)).parted] == kinds


# ---- circles


def test_both_receive_first() -> None:
    found = stuck([recv(1, 10, done=False)], [recv(0, 10, done=False)])
    assert (found.kind, found.message, found.index) == ("order", (1, 0), 0)
    assert "circle" in found.explanation and "batch_isend_irecv" in found.explanation
    found = stuck([send(1, 10, done=False)], [send(0, 10, done=False)])
    assert found.kind == "order" and "A blocking send returns when it is received" in found.explanation


def test_a_ring_of_blocking_receives() -> None:
    found = stuck(*([barrier(1), recv((r + 1) % 3, 10, done=False)] for r in range(3)), [barrier(1)])
    assert found.kind == "order" and list(found.ranks) == [0, 1, 2]


def test_a_circle_through_a_collective() -> None:
    waits = barrier(10, index=0, detail={"done": None, "async": False, "thread": 0, "raised": False})
    found = stuck([waits], [recv(0, 20, done=False)])
    assert found.kind == "order" and list(found.ranks) == [0, 1]
    assert "train.py:10" in found.explanation
    assert "Rank 0 has not reached a send for it. Either it is missing, or it comes after the barrier" in found.explanation


def test_a_circle_of_groups_is_seen_though_another_rank_waits_in_one_of_them() -> None:
    def waits(line: int, index: int, **fields: Any) -> Event:
        return barrier(line, index=index, detail={"done": None, "async": False, "thread": 0, "raised": False}, **fields)

    first = barrier(5, index=0, group="pair", detail={"done": 1.0, "async": False, "thread": 0, "raised": False})
    sequences = ([waits(10, 0)], [first, waits(10, 0)], [first, waits(20, 1, group="pair")])
    runs = [rank_run(n, [init(), *one], KILLED, code=-9, waiting=one[-1]) for n, one in enumerate(sequences)]
    found = only(compare_run(recorded(*runs, pair=(1, 2)), stalled=True))
    assert (found.kind, sorted(found.ranks)) == ("group", [1, 2])


def test_of_a_message_and_a_collective_that_a_rank_has_left_one_is_told() -> None:
    waits = barrier(10, index=0, time=10.0, detail={"done": None, "async": False, "thread": 0, "raised": False})
    ends = ([waits], [recv(2, 20, done=False)], [])
    runs = [
        rank_run(n, [init(), *one], KILLED if one else EXITED, code=-9 if one else 0, waiting=one[-1] if one else None)
        for n, one in enumerate(ends)
    ]
    found = only(compare_run(recorded(*runs), stalled=True))
    assert [rank for rank, event in found.ranks.items() if event is None] != []


def test_a_batch_of_messages_with_a_wrong_peer() -> None:
    def ring(**peers: int) -> Divergence:
        """Three ranks that each send to the right and receive from the left, but for rank 1."""
        to, source = peers.get("to", 2), peers.get("source", 0)
        return stuck(
            [isend(1, 10, done=source == 0), irecv(2, 10, done=True)],
            [isend(to, 20, done=False), irecv(source, 20, done=source == 0)],
            [isend(0, 30, done=True), irecv(1, 30, done=to == 2)],
        )

    sent = ring(to=0)
    assert (sent.kind, sent.message) == ("peer", (1, 2))
    assert "Rank 2 receives from rank 1 at train.py:30, which sends to rank 0 instead, from train.py:20." in sent.explanation
    received = ring(source=2)
    assert (received.kind, received.message) == ("peer", (0, 1))
    assert "Rank 0 sends to rank 1 from train.py:10, but rank 1 receives from rank 2 at train.py:20" in received.explanation


def test_blocking_messages_in_a_circle_are_no_wrong_peer() -> None:
    # Rank 1 would come to its send to rank 0 after the one to rank 2: the order is the fault.
    found = stuck([recv(1, 10, done=False)], [send(2, 20, done=False)], [recv(0, 30, done=False)])
    assert found.kind == "order" and "wrong peer" not in found.explanation


def test_different_tags() -> None:
    found = stuck([send(1, 10, done=False, tag=1)], [recv(0, 20, done=False, tag=2)])
    assert (found.kind, found.message) == ("operation", (0, 1))
    assert "1 is sent, 2 is asked for" in found.explanation


def test_a_circle_is_told_while_the_run_goes_on_only_where_nothing_can_undo_it() -> None:
    def live(first: Event, second: Event, backend: str = "gloo") -> list[str]:
        watch = LiveComparison(patience=0.0)
        run = ranks_of([first], [second], state=WAITING, backend=backend)
        return [found.kind for found in (*watch.update(run), *watch.update(run))]

    blocking = recv(1, 10, done=False), recv(0, 10, done=False)
    assert live(*blocking) == ["order"]
    assert live(*blocking, backend="nccl") == []  # the process goes on and may send
    assert live(irecv(1, 10, done=False), recv(0, 10, done=False)) == []
    assert live(recv(1, 10, done=False, thread=2), recv(0, 10, done=False)) == []


def test_messages_posted_early_are_not_what_a_rank_waits_in() -> None:
    early = [irecv(1, 5, done=False), barrier(10, index=0, time=10.0, detail={"done": None, "async": False, "thread": 0})]
    found = stuck(early, [irecv(0, 5, done=False), all_reduce(7, index=0, time=7.0, group="b", detail={"done": DONE})])
    assert (found.kind, found.message) == ("missing-rank", None)
    assert [event.op if event else None for event in found.ranks.values()] == ["barrier", None]


# ---- no partner


def test_a_peer_that_left() -> None:
    run = recorded(
        rank_run(0, [init(), recv(1, 10, done=False)], WAITING, waiting=recv(1, 10, done=False)),
        rank_run(1, [init(), barrier(3, group="b")]),
    )
    found = only(compare_run(run))
    assert (found.kind, found.ranks[1]) == ("missing-rank", None)
    assert "Rank 1 exited with code 0" in found.explanation and "Rank 1 never sends it" in found.explanation
    assert "nothing: exited with code 0" in render(compare_run(run))


def test_the_rank_that_failed_is_missing_and_not_those_that_wait_for_each_other() -> None:
    """Rank 0 waits for rank 1, which waits for rank 2, which has raised; a network error ends rank 1."""
    closed = exception("RuntimeError", "[pair.cc:553] Connection closed by peer")
    run = recorded(
        rank_run(0, [init(), send(1, 10, done=False)], KILLED, -15, waiting=send(1, 10, done=False)),
        rank_run(1, [init(), recv(2, 20), closed], RAISED, 1),
        rank_run(2, [init(), exception("ValueError", "a bad sample")], RAISED, 1),
    )
    found = only(compare_run(run))
    assert (found.kind, found.message) == ("missing-rank", (2, 1))
    assert "ValueError: a bad sample" in found.explanation


def test_a_rank_that_does_not_come() -> None:
    found = stuck([isend(1, 9), send(1, 10, done=False)], [recv(0, 20), barrier(21, group="b", detail={"done": DONE})])
    assert (found.kind, found.index) == ("missing-rank", 1)


def test_a_message_too_many_in_a_run_that_ended() -> None:
    for ranks, word in (
        (([isend(1, 10, done=False)], []), "received"),
        (([irecv(1, 10, done=False)], [isend(0, 20, tag=3)]), "sent"),
    ):
        comparison = compare_run(ranks_of(*ranks))
        found = only(comparison)
        assert found.kind == "extra" and f"never {word}" in found.explanation
        assert "no partner" in render(comparison) and comparison.exit_code == 1


def test_a_worker_that_is_started_again_is_fed_anew() -> None:
    messages = Messages()
    messages.feed(0, [send(1, 1, 4), send(1, 2, 5)])
    messages.feed(1, [recv(0, 1, 5)])
    messages.feed(0, [send(1, 1, 5)])
    (line,) = messages.lines()
    assert (len(line.sends), line.met, line.look(messages.payloads)) == (1, 1, None)
