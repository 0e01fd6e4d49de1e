"""Programs that differ between ranks: the predicted end of the run, and where each rank stands, against real gloo."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from agreement import outcome_disagreement, predict, predicted_outcome
from drawing import draw_unequal_case
from predictor import Case
from real_ranks import RealRanks

from ddp_audit.events import COLLECTIVE, DDP_BUCKET, DDP_BUFFERS, Event, Site
from ddp_audit.machine.ddp import Ddp
from ddp_audit.machine.module import ModuleSpec
from ddp_audit.machine.process_group import Groups, ProcessGroup, match, run_ranks

WITH_BUFFERS: dict[str, Any] = {"params": [["w", [40], "float32", True]], "buffers": [["mean", 64, "float32"]]}
NO_BUFFERS: dict[str, Any] = {"params": [["w", [40], "float32", True]], "buffers": []}
EVAL = ["forward", "no_grad", False, None]
EVAL_GRAD = ["forward", "grad", False, None]
BARRIER = [["barrier"]]


def train(*numbers: int) -> list[list[Any]]:
    """A step for each of these outputs."""
    return [op for n in numbers for op in (["forward", "grad", True, None], ["backward", [n], False], ["step"], ["zero", True])]


# name: model, program of rank 0, program of rank 1, kind
CASES: dict[str, tuple[dict[str, Any], list[list[Any]], list[list[Any]], str]] = {
    "eval on rank 0, then training": (WITH_BUFFERS, [*train(0, 1), EVAL, *train(3)], train(0, 1, 2), "completes"),
    "three evals on rank 0, then training": (WITH_BUFFERS, [*train(0, 1), *[EVAL] * 3, *train(5)], train(0, 1, 2), "completes"),
    "eval on rank 1, then training": (WITH_BUFFERS, train(0, 1, 2), [*train(0, 1), EVAL, *train(3)], "completes"),
    "eval before the first step": (WITH_BUFFERS, [EVAL, *train(1, 2)], train(0, 1), "completes"),
    "eval on rank 0, then a barrier": (
        WITH_BUFFERS,
        [*train(0, 1), EVAL, *BARRIER, *train(3)],
        [*train(0, 1), *BARRIER, *train(2)],
        "hangs",
    ),
    "eval between the first and the second step": (WITH_BUFFERS, [*train(0), EVAL, *train(2)], train(0, 1), "aborts"),
    "eval with gradients on": (WITH_BUFFERS, [*train(0, 1), EVAL_GRAD, *train(3)], train(0, 1, 2), "hangs"),
    "eval at the end": (WITH_BUFFERS, [*train(0, 1), EVAL], train(0, 1), "hangs"),
    "eval without buffers": (NO_BUFFERS, [*train(0, 1), EVAL, *BARRIER], [*train(0, 1), *BARRIER], "completes"),
    "eval with gradients between steps, without buffers": (
        NO_BUFFERS,
        [*train(0), EVAL_GRAD, *train(2)],
        train(0, 1),
        "completes",
    ),
    "eval past the wrapper": (
        WITH_BUFFERS,
        [*train(0, 1), ["module", "no_grad", False, None], *BARRIER],
        [*train(0, 1), *BARRIER],
        "completes",
    ),
    "uneven evaluations of at least one": (
        WITH_BUFFERS,
        [*train(0), EVAL, EVAL, *BARRIER],
        [*train(0), EVAL, *BARRIER],
        "completes",
    ),
    "one rank evaluates nothing": (WITH_BUFFERS, [*train(0), EVAL, *BARRIER], [*train(0), *BARRIER], "hangs"),
    "a batch skipped": (NO_BUFFERS, train(0, 1, 2, 3), train(0, 1, 2), "hangs"),
    "backward skipped, with buffers": (
        WITH_BUFFERS,
        train(0, 1, 2, 3),
        [*train(0, 1), ["forward", "grad", True, None], *train(3)],
        "hangs",
    ),
    "flag cleared on one rank": (
        WITH_BUFFERS,
        train(0, 1, 2, 3),
        [*train(0, 1), ["flag", False], *train(2), ["flag", True], *train(3)],
        "hangs",
    ),
    "all_reduce of unequal sizes": (
        NO_BUFFERS,
        [["all_reduce", 64, "float32", "SUM"]],
        [["all_reduce", 65, "float32", "SUM"]],
        "aborts",
    ),
    "sum meets maximum": (
        NO_BUFFERS,
        [["all_reduce", 4, "float32", "SUM"]],
        [["all_reduce", 4, "float32", "MAX"]],
        "completes",
    ),
    "roots differ": (NO_BUFFERS, [["broadcast", 4, "float32", 0]], [["broadcast", 4, "float32", 1]], "hangs"),
    "barrier meets all_reduce": (NO_BUFFERS, BARRIER, [["all_reduce", 4, "float32", "SUM"]], "hangs"),
    "objects in place of a barrier": (NO_BUFFERS, BARRIER, [["all_gather_object", "x"]], "hangs"),
}


@pytest.mark.parametrize("name", CASES)
def test_named_programs(real: RealRanks, name: str) -> None:
    model, first, second, kind = CASES[name]
    case = Case(model, {}, [first, second])
    assert predicted_outcome(case).kind == kind
    assert outcome_disagreement(case, real) is None


@pytest.mark.parametrize("bucket_cap_mb", [25, 0.0001], ids=["one-bucket", "bucket-each"])
def test_a_parameter_unused_on_one_rank(real: RealRanks, bucket_cap_mb: float) -> None:
    """The others wait in their backward; the rank itself steps with local gradients and raises in its next forward.

    With several buckets it sends those that it filled, and waits for none of them.
    """
    model = {"params": [["body", [40], "float32", True], ["head", [30], "float32", True]], "buffers": []}
    partial = [["forward", "grad", True, ["head"]], ["backward", [2], False], ["step"], ["forward", "grad", True, None]]
    case = Case(model, {"bucket_cap_mb": bucket_cap_mb}, [train(0, 1, 2), [*train(0, 1), *partial]])
    outcome = predicted_outcome(case)
    assert outcome.kind == "hangs"
    assert outcome.positions[1] == len([e for step in predict(case)[1] for e in step.events])
    assert predict(case)[1][-1].error.startswith("Expected to have finished reduction")
    assert outcome_disagreement(case, real) is None


def test_random_unequal_programs(real: RealRanks) -> None:
    for seed in range(12):
        case = draw_unequal_case(random.Random(seed))
        assert outcome_disagreement(case, real) is None, case


SIZES = [
    (["all_reduce", 2, "float32", "SUM"], ["all_reduce", 4, "float32", "SUM"]),
    (["all_reduce", 1, "float32", "SUM"], ["all_reduce", 2, "float32", "SUM"]),
    (["broadcast", 32, "float32", 0], ["broadcast", 64, "float32", 0]),
    (["broadcast", 64, "float32", 0], ["broadcast", 32, "float32", 0]),
    (["all_gather", 4, "float32"], ["all_gather", 8, "float32"]),
    (["all_reduce", 4, "int32", "SUM"], ["all_reduce", 4, "float32", "SUM"]),
    (["all_reduce", 1, "float64", "SUM"], ["all_reduce", 2, "float32", "SUM"]),
    (["reduce", 4, "float32", 0], ["reduce", 8, "float32", 0]),
    (["gather", 4, "float32", 0], ["gather", 8, "float32", 0]),
    (["scatter", 4, "float32", 0], ["scatter", 8, "float32", 0]),
    (["reduce_scatter_single", 4, "float32", "SUM"], ["reduce_scatter_single", 8, "float32", "SUM"]),
    (["reduce_scatter_single", 4, "float32", "SUM"], ["all_reduce", 8, "float32", "SUM"]),
    (["all_to_all_single", 4, "float32"], ["all_to_all_single", 8, "float32"]),
]


@pytest.mark.parametrize(("first", "second"), SIZES, ids=lambda op: "-".join(map(str, op[:3])))
def test_sizes(real: RealRanks, first: list[Any], second: list[Any]) -> None:
    """Whether unequal sizes abort, hang or pass follows from how gloo cuts its messages."""
    case = Case(NO_BUFFERS, {}, [[first, ["barrier"]], [second, ["barrier"]]])
    assert outcome_disagreement(case, real) is None


FIVE: dict[str, list[list[list[Any]]]] = {
    # Rank 4 holds no part of so small a tensor and is done before the others.
    "one rank gathers before a reduce": [
        [*([["all_gather", 4, "float32"]] if rank == 2 else []), ["reduce", 4, "float32", 0], ["barrier"]] for rank in range(5)
    ],
    "a leaf of the tree skips a broadcast": [
        [*([] if rank == 3 else [["broadcast", 4, "float32", 0]]), ["broadcast", 64, "float32", 0]] for rank in range(5)
    ],
    "an inner rank broadcasts once more": [
        [*([["broadcast", 64, "float32", 0]] if rank == 1 else []), ["broadcast", 64, "float32", 0], ["broadcast", 4, "float32", 0]]
        for rank in range(5)
    ],
    "all agree": [[["all_reduce", 3, "float32", "SUM"], ["broadcast", 9, "int64", 4], ["all_gather_object", "x"], ["barrier"]]] * 5,
}


def test_five_ranks() -> None:
    """The trees and rings of gloo: who still returns when one rank of five strays."""
    pytest.importorskip("torch")
    with RealRanks(timeout=1.5, world_size=5) as five:
        for name, programs in FIVE.items():
            assert outcome_disagreement(Case(NO_BUFFERS, {}, programs), five) is None, name


# The matcher alone.


def at(line: int, event: Event) -> Event:
    return replace(event, site=Site("train.py", line))


def test_meetings_name_the_lines() -> None:
    group = ProcessGroup()
    [evaluation], [training] = group.broadcast(64, "float32"), group.broadcast(64, "float32")
    outcome = match([[at(224, evaluation)], [at(305, training)]])
    assert outcome.kind == "completes"
    [meeting] = outcome.meetings
    assert (meeting.what, meeting.index) == ("site", 0)
    assert "train.py:224" in outcome.explanation and "train.py:305" in outcome.explanation


def test_an_unknown_size_agrees_with_all() -> None:
    group = ProcessGroup()
    assert match([group.broadcast(None, None), group.broadcast(64, "float32")]).kind == "completes"


def test_many_ranks() -> None:
    group = ProcessGroup()
    good = [
        *group.all_reduce(1000, "float32"),
        *group.broadcast(7, "int64", root=3),
        *group.all_gather(5, "float32"),
        *group.barrier(),
    ]
    assert match([good] * 9).kind == "completes"
    outcome = match({rank: good if rank != 5 else good[:-1] for rank in range(9)})
    assert outcome.kind == "hangs"
    assert outcome.positions[5] == 3
    assert "rank 5 has ended" in outcome.explanation


def test_buckets_are_under_way_together() -> None:
    """The second bucket of a backward is sent although the first one meets nobody."""

    buckets = [Event(COLLECTIVE, op="all_reduce", origin=DDP_BUCKET, numel=n, dtype="float32", reduce_op="sum") for n in (64, 128)]
    other = [ProcessGroup().barrier()[0], buckets[1]]
    outcome = run_ranks([[buckets], [other]])
    assert outcome.kind == "hangs"
    assert outcome.positions == {0: 0, 1: 0}
    smaller = [buckets[0], Event(COLLECTIVE, op="all_reduce", origin=DDP_BUCKET, numel=64, dtype="float32", reduce_op="sum")]
    assert run_ranks([[buckets], [smaller]]).kind == "aborts"


def test_groups_are_named_by_count() -> None:
    ranks = [Groups(rank, 4) for rank in range(4)]
    programs: list[list[Event]] = []
    for rank, groups in enumerate(ranks):
        events, group = groups.new_group((0, 1))
        assert (group is not None) == (rank < 2)
        programs.append(events + (group.all_reduce(1, "float32") if group else []) + groups.default.barrier())
    assert match(programs, ranks[0].members).kind == "completes"


def test_groups_made_by_members_only_part_names() -> None:
    """It works at first; the next group that all ranks make has different names, and nobody comes to it."""
    programs = []
    members: dict[str, tuple[int, ...]] = {}
    for rank in range(3):
        groups = Groups(rank, 3)
        events: list[Event] = []
        if rank < 2:
            made, _ = groups.new_group((0, 1))
            events += made
        made, group = groups.new_group()
        assert group is not None
        programs.append(events + made + group.all_reduce(1, "float32"))
        members.update(groups.members)
    outcome = match(programs, members)
    assert outcome.kind == "hangs"
    assert outcome.positions == {0: 1, 1: 1, 2: 0}


def test_an_unknown_module_keeps_one_event_each() -> None:
    ddp = Ddp(ModuleSpec.unknown(buffers=True))
    assert [e.op for e in ddp.construct()] == ["all_gather", "broadcast", "broadcast"]
    first = ddp.forward()
    assert [(e.origin, e.numel) for e in first.events] == [(DDP_BUFFERS, None)]
    assert [e.numel for e in ddp.backward([first.handle])] == [None]
    assert [e.origin for e in ddp.forward().events] == ["ddp-rebuild", "ddp-rebuild", "ddp-buffers"]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("call", ["broadcast", "gather", "message"])
def test_one_element_too_many_is_too_much(real: RealRanks, call: str, dtype: str) -> None:
    """Gloo ends the receiver's process for a single byte, and not for eight and more alone."""
    programs: dict[str, list[list[list[Any]]]] = {
        "broadcast": [[["broadcast", 5, dtype, 0]], [["broadcast", 4, dtype, 0]]],
        "gather": [[["gather", 4, dtype, 0]], [["gather", 5, dtype, 0]]],
        "message": [[["send", 5, dtype, 1, 0]], [["recv", 4, dtype, 0, 0]]],
    }
    case = Case(NO_BUFFERS, {}, programs[call])
    assert predicted_outcome(case).kind == "aborts"
    assert outcome_disagreement(case, real) is None
