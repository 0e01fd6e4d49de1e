"""Hand-made sequences for each kind of divergence, the traps that must stay silent, and properties of the alignment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compare_events import all_reduce, barrier, broadcast, call, forward, site
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_audit.compare.align import Aligner, align
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import (
    BATCH,
    DDP_BUCKET,
    DDP_BUFFERS,
    DDP_JOIN,
    OBJECT,
    Event,
)


def never(path: str, a: int, b: int) -> bool:
    return False


def only(found: list[Divergence]) -> Divergence:
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (all_reduce(1), barrier(2), "operation"),
        (all_reduce(1, 4), all_reduce(1, 2), "size"),
        (all_reduce(1), all_reduce(1, dtype="int32"), "dtype"),
        (all_reduce(1), all_reduce(1, reduce_op="max"), "reduce-op"),
        (broadcast(1, root=0), broadcast(1, root=1), "root"),
    ],
)
def test_one_differing_field_gives_its_kind(a: Event, b: Event, kind: str) -> None:
    before = [barrier(9), all_reduce(10)]
    found = only(align({0: [*before, a], 1: [*before, b]}))
    assert (found.kind, found.index, found.group, found.odd) == (kind, 2, "default", [])
    assert found.ranks == {0: a, 1: b}
    assert "train.py:1" in found.explanation
    assert found.explanation.startswith("Rank 0 is in a")
    assert found.explanation.endswith(".")


def test_opposite_order_is_order() -> None:
    a, b = all_reduce(1, 4), all_reduce(2, 8)
    found = only(align({0: [a, b], 1: [b, a]}))
    assert (found.kind, found.index) == ("order", 0)


def test_opposite_order_of_two_groups() -> None:
    a, b = all_reduce(1, group="a"), all_reduce(2, group="b")
    found = only(align({0: [a, b], 1: [b, a]}, {"a": [0, 1], "b": [0, 1]}))
    assert (found.kind, found.index) == ("group", 0)
    assert found.ranks == {0: a, 1: b}


def test_asynchronous_collectives_may_use_groups_in_any_order() -> None:
    a = all_reduce(1, group="a", detail={"async": True})
    b = all_reduce(2, group="b", detail={"async": True})
    assert align({0: [a, b], 1: [b, a]}, {"a": [0, 1], "b": [0, 1]}) == []
    a, b = all_reduce(1, group="a", origin=DDP_BUCKET), all_reduce(2, group="b")
    assert align({0: [a, b], 1: [b, a]}, {"a": [0, 1], "b": [0, 1]}) == []


def test_a_longer_sequence_is_extra_only_when_the_sequences_are_whole() -> None:
    a = all_reduce(1)
    found = only(align({0: [a, a], 1: [a]}))
    assert (found.kind, found.index, found.ranks) == ("extra", 1, {0: a, 1: None})
    assert align({0: [a, a], 1: [a]}, complete=False) == []


def test_only_the_first_divergence_of_a_group_counts() -> None:
    a, b = all_reduce(1), barrier(2)
    other = all_reduce(3, group="g"), barrier(4, group="g")
    found = align({0: [a, b, a, other[0]], 1: [b, b, b, other[1]]}, {"g": [0, 1]})
    assert [(d.group, d.index) for d in found] == [("default", 0), ("g", 0)]


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_the_minority_is_odd_whichever_rank_it_is(odd: int) -> None:
    sequences = {rank: [barrier(2) if rank == odd else all_reduce(1)] for rank in range(3)}
    assert only(align(sequences)).odd == [odd]


def test_no_majority_no_odd_rank() -> None:
    assert only(align({r: [barrier(2) if r < 2 else all_reduce(1)] for r in range(4)})).odd == []
    assert only(align({r: [all_reduce(1, r + 1)] for r in range(3)})).odd == []
    assert only(align({0: [barrier()], 1: [all_reduce()]})).odd == []


def test_a_field_that_is_none_agrees_with_everything() -> None:
    unknown = all_reduce(1, None, dtype=None, reduce_op=None, stack=(), site=None)
    assert align({0: [unknown], 1: [all_reduce(7)], 2: [unknown]}) == []
    found = only(align({0: [unknown], 1: [all_reduce(7, 4)], 2: [all_reduce(7, 8)]}))
    assert found.kind == "size"


def test_collectives_of_a_subgroup_concern_its_members_only() -> None:
    sub = all_reduce(2, group="low")
    assert align({0: [sub], 1: [sub], 2: [], 3: []}, {"low": [0, 1]}) == []
    assert align({0: [sub], 1: [sub], 2: [], 3: []}) == []


def test_a_group_made_again_under_its_name_counts_from_zero() -> None:
    events = [barrier(1, index=0), barrier(2, index=1), all_reduce(3, index=0)]
    assert align({0: events, 1: events}) == []
    found = only(align({0: events, 1: [*events[:2], barrier(3, index=0)]}))
    assert (found.kind, found.index) == ("operation", 0)


def test_what_torch_lets_differ_is_no_divergence() -> None:
    def pair(a: Event, b: Event) -> list[Divergence]:
        return align({0: [a], 1: [b]})

    scatter = {"dtype": "float32", "root": 0}
    assert pair(call("scatter", numel=8, **scatter), call("scatter", numel=0, dtype=None, root=0)) == []
    assert pair(call("all_to_all", numel=8), call("all_to_all", numel=2)) == []
    assert pair(call("send", numel=8, root=1), call("recv", numel=8, root=0)) == []
    assert pair(call("barrier", numel=1, dtype="uint8"), call("barrier", numel=0, dtype="float32")) == []
    # Shapes are not compared: [6] against [2, 3] works.
    assert pair(all_reduce(numel=6, detail={"shape": [[6]]}), all_reduce(numel=6, detail={"shape": [[2, 3]]})) == []


def test_uneven_all_gather_is_a_divergence_unless_the_backend_supports_it() -> None:
    a, b = call("all_gather", numel=2, dtype="float32"), call("all_gather", numel=4, dtype="float32")
    assert only(align({0: [a], 1: [b]})).kind == "size"
    aligner = Aligner([0, 1], uneven_gather=True)
    aligner.feed(0, [a])
    aligner.feed(1, [b])
    assert aligner.mismatches() == []


def test_an_extra_collective_is_explained_as_one() -> None:
    a, b, extra = all_reduce(1), all_reduce(2, 8), barrier(3)
    found = align({0: [a, extra, a, b], 1: [a, a, b]})[0]
    assert (found.kind, found.index) == ("operation", 1)
    assert "Rank 0 issues one collective more here" in found.explanation


def test_a_call_in_place_of_another_is_no_extra_one() -> None:
    a, other = all_reduce(1), all_reduce(2, reduce_op="max")
    found = align({0: [a, a, a, a], 1: [a, other, a, a]})[0]
    assert (found.kind, found.index) == ("reduce-op", 1)
    assert "one collective more" not in found.explanation


# Crossed places


def test_an_evaluation_that_meets_a_training_forward_is_crossed() -> None:
    inner = site(224, "estimate_loss")
    evaluation = broadcast(64, origin=DDP_BUFFERS, stack=(inner, site(264)))
    training = broadcast(64, origin=DDP_BUFFERS, stack=(site(300),))
    bucket = all_reduce(305, 100, origin=DDP_BUCKET)
    found = align(
        {0: [forward(False), evaluation, forward(True), bucket], 1: [forward(True), training, bucket]}, exclusive_lines=never
    )
    notice = only(found)
    assert (notice.kind, notice.index, notice.is_notice) == ("crossed", 0, True)
    assert "train.py:224 (called from train.py:264)" in notice.explanation
    assert "without gradients" in notice.explanation and "train.py:300" in notice.explanation


def test_the_same_line_with_and_without_gradients_is_crossed() -> None:
    buffers = broadcast(5, origin=DDP_BUFFERS)
    assert only(align({0: [forward(False), buffers], 1: [forward(True), buffers]})).kind == "crossed"
    assert align({0: [forward(True), buffers], 1: [forward(True), buffers]}) == []
    assert align({0: [buffers], 1: [forward(True), buffers]}) == []


def test_swapped_sums_of_one_shape_are_crossed() -> None:
    a, b = all_reduce(0, stack=(site(10, "loss"), site(2))), all_reduce(0, stack=(site(20, "accuracy"), site(3)))
    found = align({0: [a, b], 1: [b, a]}, exclusive_lines=never)
    assert {d.kind for d in found} == {"crossed"}
    assert found[0].count == 2, "both meetings are of one pair of places"
    assert "opposite order" in found[0].explanation


def test_arms_of_one_branch_are_not_crossed() -> None:
    a, b = all_reduce(10), all_reduce(12)
    assert align({0: [a] * 3, 1: [b] * 3}, exclusive_lines=lambda *_: True) == []
    assert only(align({0: [a] * 3, 1: [b] * 3}, exclusive_lines=never)).count == 3
    # Without the source: two calls of one function pass, swapped ones do not.
    assert align({0: [a] * 3, 1: [b] * 3}, exclusive_lines=lambda *_: None) == []
    assert only(align({0: [a, b], 1: [b, a]}, exclusive_lines=lambda *_: None)).kind == "crossed"


def test_arms_of_a_branch_around_different_functions_are_not_crossed() -> None:
    a = all_reduce(0, stack=(site(10, "send_weights"), site(30)))
    b = all_reduce(0, stack=(site(20, "receive_weights"), site(32)))
    asked = []

    def answer(path: str, x: int, y: int) -> bool:
        asked.append((path, x, y))
        return True

    assert align({0: [a], 1: [b]}, exclusive_lines=answer) == []
    assert asked == [("train.py", 30, 32)]


def test_a_joined_rank_shadows_without_notice() -> None:
    shadow = all_reduce(50, origin=DDP_JOIN)
    assert align({0: [all_reduce(7, origin=DDP_BUCKET)], 1: [shadow]}, exclusive_lines=never) == []


def test_different_origins_are_crossed_even_from_arms_of_a_branch() -> None:
    user, buffers = broadcast(3), broadcast(5, origin=DDP_BUFFERS)
    assert only(align({0: [user], 1: [buffers]}, exclusive_lines=lambda *_: True)).kind == "crossed"
    assert align({0: [user], 1: [broadcast(3, origin=OBJECT)]}, exclusive_lines=never) == []


def test_what_follows_a_divergence_is_not_crossed() -> None:
    a, b = all_reduce(0, stack=(site(1, "f"),)), all_reduce(0, stack=(site(2, "g"),))
    found = align({0: [a, barrier(), a], 1: [b, all_reduce(9, 7), b]}, exclusive_lines=never)
    assert [(d.kind, d.index, d.count) for d in found] == [("operation", 1, 1), ("crossed", 0, 1)]


def test_stacks_cut_at_a_bound_are_aligned_by_function() -> None:
    long = all_reduce(0, stack=(site(10, "work"), site(5, "step"), site(3, "main")))
    cut = all_reduce(0, stack=(site(12, "work"), site(5, "step")))
    asked = []
    align({0: [long], 1: [cut]}, exclusive_lines=lambda *a: asked.append(a) or True)
    assert asked == [("train.py", 10, 12)]


# Properties

EVENTS = st.builds(
    lambda op, numel, line, group: replace(
        {"all_reduce": all_reduce, "broadcast": broadcast}[op](line, numel) if op != "barrier" else barrier(line), group=group
    ),
    st.sampled_from(["all_reduce", "broadcast", "barrier"]),
    st.integers(1, 5),
    st.integers(1, 9),
    st.sampled_from(["default", "g"]),
)
SEQUENCES = st.lists(EVENTS, max_size=30)


@given(SEQUENCES, st.integers(2, 5))
def test_equal_sequences_never_diverge(events: list[Event], ranks: int) -> None:
    assert align(dict.fromkeys(range(ranks), events), {"g": range(ranks)}) == []


@given(SEQUENCES, st.data())
def test_one_mutated_event_is_found_at_its_index(events: list[Event], data: st.DataObject) -> None:
    events = [*events, all_reduce(1, 3)]
    at = data.draw(st.integers(0, len(events) - 1))
    changed = replace(events[at], op="reduce_scatter", numel=77)
    ranks = data.draw(st.integers(2, 5))
    odd = data.draw(st.integers(0, ranks - 1))
    sequences = {r: [*events[:at], changed, *events[at + 1 :]] if r == odd else events for r in range(ranks)}
    found = only(align(sequences, {"g": range(ranks)}))
    index = sum(e.group == events[at].group for e in events[:at])
    assert (found.group, found.index, found.kind) == (events[at].group, index, "operation")
    assert found.odd == ([odd] if ranks >= 3 else [])


@settings(max_examples=50)
@given(SEQUENCES, SEQUENCES, st.data())
def test_piecewise_feeding_finds_what_whole_sequences_give(a: list[Event], b: list[Event], data: st.DataObject) -> None:
    whole, pieces = (Aligner([0, 1], {"g": [0, 1]}) for _ in range(2))
    for rank, events in ((0, a), (1, b)):
        whole.feed(rank, events)
    left = {0: a, 1: b}
    while any(left.values()):
        rank = data.draw(st.sampled_from([r for r in left if left[r]]))
        count = data.draw(st.integers(1, len(left[rank])))
        pieces.feed(rank, left[rank][:count])
        left[rank] = left[rank][count:]
    assert pieces.mismatches() == whole.mismatches()


def test_events_of_other_kinds_do_not_count() -> None:
    batch = Event(BATCH, detail={"fingerprint": "x"})
    assert align({0: [batch, all_reduce()], 1: [all_reduce(), batch, batch]}) == []
