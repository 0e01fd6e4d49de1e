"""Process groups against real gloo: creation and names, objects, point to point, coalescing, handles."""

from __future__ import annotations

from typing import Any

import pytest
from agreement import disagreement, outcome_disagreement, predict, predicted_outcome
from predictor import Case, Predictor
from real_ranks import WORLD_SIZE, RealRanks

from ddp_audit.events import COLLECTIVE, POINT_TO_POINT
from ddp_audit.machine.process_group import Groups, ProcessGroup, asynchronous, match, pickled_size, wait

MODEL: dict[str, Any] = {"params": [["w", [4], "float32", True]], "buffers": []}
REDUCE = ["all_reduce", 3, "float32", "SUM"]


def ranks(first: list[list[Any]], second: list[list[Any]] | None = None) -> Case:
    return Case(MODEL, {}, [first, first if second is None else second])


EQUAL: dict[str, list[list[Any]]] = {
    "a group of all, and its own numbers": [["new_group", None, False], ["on", 0, REDUCE], REDUCE],
    "a group of one: the other rank's calls do nothing": [
        ["new_group", [1], False],
        ["on", 0, REDUCE],
        ["on", 0, ["barrier"]],
        REDUCE,
    ],
    "roots are global ranks": [["new_group", [1], False], ["on", 0, ["broadcast", 3, "float32", 1]]],
    "local synchronization": [["new_group", [0, 1], True], ["on", 0, REDUCE], ["new_group", None, False], ["on", 1, REDUCE]],
    "objects have the sizes of their pickles": [
        ["all_gather_object", "some text"],
        ["broadcast_object_list", ["some text", 1], 1],
        ["gather_object", "some text", 0],
        ["scatter_object_list", ["some", "text"], 0],
    ],
    "coalesced all-reduces are one": [
        ["coalesced", [3, 5], "float32", "SUM", "manager"],
        ["coalesced", [3, 5], "int64", "MAX", "function"],
        ["async", ["coalesced", [2, 2], "float32", "SUM", "manager"]],
        ["wait", 0],
    ],
    "operations into one tensor": [
        ["all_gather_single", 3, "float32"],
        ["reduce_scatter_single", 3, "float32", "SUM"],
        ["all_to_all_single", 3, "float32"],
        ["gather", 3, "float32", 1],
        ["scatter", 3, "float32", 1],
    ],
    "a message each way": [["pass", 3, "float32", 0, 0], ["pass", 3, "float32", 1, 7], ["swap", 3, "int64"]],
    "handles may be awaited in any order": [["async", REDUCE], ["async", ["barrier"]], ["wait", 1], ["wait", 0]],
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs(real: RealRanks, name: str) -> None:
    case = ranks(EQUAL[name])
    assert disagreement(case, real) is None
    assert predicted_outcome(case).kind == "completes"


SEND, RECEIVE = ["pass", 3, "float32", 0, 0], ["pass", 3, "float32", 1, 0]
UNEQUAL: dict[str, tuple[list[list[Any]], list[list[Any]], str]] = {
    "made by its member alone, and no later group": ([["new_group", [0], False], ["barrier"]], [["barrier"]], "completes"),
    "made by its member alone, then one of all": (
        [["new_group", [0], False], ["new_group", None, False]],
        [["new_group", None, False]],
        "hangs",
    ),
    "in opposite orders": (
        [["new_group", None, False], ["new_group", [0], False]],
        [["new_group", [0], False], ["new_group", None, False]],
        "hangs",
    ),
    "local synchronization by its member alone": ([["new_group", [0], True], REDUCE], [REDUCE], "completes"),
    "local synchronization while members are in different numbers of groups": (
        [["new_group", [0], True], ["new_group", None, True]],
        [["new_group", None, True]],
        "hangs",
    ),
    "both send first": ([["send", 3, "float32", 1, 0]], [["send", 3, "float32", 0, 0]], "hangs"),
    "both receive first": ([["recv", 3, "float32", 1, 0]], [["recv", 3, "float32", 0, 0]], "hangs"),
    "send and receive in the same order": ([SEND, RECEIVE], [SEND, RECEIVE], "completes"),
    "a send that nobody receives": ([SEND, ["barrier"]], [["barrier"]], "hangs"),
    "an asynchronous send that nobody receives": ([["async", SEND], ["barrier"]], [["barrier"]], "completes"),
    "and is awaited": ([["async", SEND], ["wait", 0]], [["barrier"]], "hangs"),
    "tags differ": ([["send", 3, "float32", 1, 1]], [["recv", 3, "float32", 0, 2]], "hangs"),
    "more is sent than received": ([["send", 8, "float32", 1, 0]], [["recv", 3, "float32", 0, 0]], "aborts"),
    "less is sent than received": ([["send", 3, "float32", 1, 0]], [["recv", 8, "float32", 0, 0]], "completes"),
    "an asynchronous collective that the other rank lacks": ([["async", REDUCE], ["barrier"]], [["barrier"]], "hangs"),
    "coalesced meets one of the same size": (
        [["coalesced", [3, 5], "float32", "SUM", "manager"]],
        [["all_reduce", 8, "float32", "SUM"]],
        "completes",
    ),
    "coalesced meets them one by one": (
        [["coalesced", [8, 8], "float32", "SUM", "manager"]],
        [["all_reduce", 8, "float32", "SUM"]] * 2,
        "aborts",
    ),
}


# The later group has the name of the earlier one on the other rank, and finds addresses there: whether the rank that lacks the
# earlier group comes out of its call before it waits is a race. The run hangs either way.
RACES = {"made by its member alone, then one of all"}


@pytest.mark.parametrize("name", UNEQUAL)
def test_unequal_programs(real: RealRanks, name: str) -> None:
    first, second, kind = UNEQUAL[name]
    case = ranks(first, second)
    assert predicted_outcome(case).kind == kind
    if name in RACES:
        assert real.run(case.programs, case.model, case.options).kind == kind
    else:
        assert outcome_disagreement(case, real) is None


def test_a_rank_outside_a_local_group_has_the_default_group(real: RealRanks) -> None:
    """Torch gives it None, and `group=None` is the default group: its call waits for ranks that are elsewhere."""
    case = ranks([["new_group", [0], True], ["on", 0, REDUCE], ["barrier"]])
    assert [event.group for event in Predictor(1, case).run(case.programs[1])[2].events] == ["default"]
    assert predicted_outcome(case).kind == "hangs"
    assert outcome_disagreement(case, real) is None


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}], ids=str)
def test_a_wrapper_on_a_group_of_its_own(real: RealRanks, options: dict[str, Any]) -> None:
    """All of the wrapper's traffic is the group's, the user's own is the default group's; each counts its own."""
    step = [["forward", "grad", True, None], ["backward", [0], False], ["forward", "grad", True, None], ["backward", [1], False]]
    model = {**MODEL, "buffers": [["b", 2, "float32"]]}
    case = Case(model, {**options, "own_group": True}, [[REDUCE, *step]] * WORLD_SIZE)
    assert disagreement(case, real) is None
    sent = [e for s in Predictor(0, case).run(case.programs[0]) for e in s.events if e.kind == COLLECTIVE]
    assert {e.group for e in sent if e.origin != "user"} == {"1"}
    late = Case(model, {**options, "own_group": True}, [[REDUCE, *step], [*step, REDUCE]])
    assert predicted_outcome(late).kind == "hangs"
    assert outcome_disagreement(late, real) is None


def test_named_sizes() -> None:
    group = ProcessGroup()
    assert [e.numel for e in group.all_gather_object([10, 30, 20])] == [1, 30]
    assert [e.numel for e in group.broadcast_object_list(3, sizes=[10, 30, 20])] == [3, 60]
    assert [e.numel for e in group.scatter_object_list(sizes=[10, None])] == [1, None, 1]
    assert pickled_size("text") == 19
    assert group.all_reduce_coalesced([]) == []


def test_point_to_point_on_many_ranks() -> None:
    """A chain of sends unwinds from its end; a ring of sends does not."""
    group = ProcessGroup()
    chain = [
        [*(group.send(4, "float32", peer=r + 1) if r < 3 else []), *(group.recv(4, "float32", peer=r - 1) if r else [])]
        for r in range(4)
    ]
    ring = [[*group.send(4, "float32", peer=(r + 1) % 4), *group.recv(4, "float32", peer=(r - 1) % 4)] for r in range(4)]
    assert match(chain).kind == "completes"
    assert match(ring).kind == "hangs"
    eager = [[*asynchronous(events[:1], 0), *events[1:], *wait(0)] for events in ring]
    assert match(eager).kind == "completes"


def test_point_to_point_takes_no_number_of_the_group(real: RealRanks) -> None:
    case = ranks([["async", SEND], REDUCE], [REDUCE, ["recv", 3, "float32", 0, 0]])
    assert {e.op in POINT_TO_POINT for steps in predict(case) for s in steps[1:] for e in s.events if e.kind == COLLECTIVE} == {
        True,
        False,
    }
    assert predicted_outcome(case).kind == "completes"
    assert outcome_disagreement(case, real) is None


def test_names_count_on_every_rank() -> None:
    groups = Groups(2, 4)
    for expected, members in enumerate([(0, 1), None, (2, 3)], start=1):
        [event], group = groups.new_group(members)
        assert event.detail["name"] == str(expected)
        assert (group is None) == (members == (0, 1))
    [event], _ = groups.new_group((2, 3), use_local_synchronization=True)
    assert len(event.detail["name"]) == 40
    assert groups.counted == 4
    assert WORLD_SIZE == 2
