"""Uneven inputs under `join`, on the machine and on real DDP."""

from __future__ import annotations

import random
from typing import Any

import pytest
from agreement import disagreement, predict
from drawing import draw_join_case
from predictor import Case, Predictor, Step
from real_ranks import RealRanks

from ddp_audit.events import DDP_BUFFERS, DDP_CONSTRUCTOR, DDP_JOIN
from ddp_audit.machine.ddp import AVERAGED
from ddp_audit.machine.join import JoinBlock

MODEL: dict[str, Any] = {
    "params": [["m.body", [4, 2], "float32", True], ["m.head", [3], "float32", True]],
    "buffers": [["mask", 5, "float32"]],
}


def iterations(*numbers: int) -> list[list[Any]]:
    return [op for n in numbers for op in (["forward", "grad", True, None], ["backward", [n], False])]


def agreed(real: RealRanks, first: list[list[Any]], second: list[list[Any]]) -> list[list[Step]]:
    case = Case(MODEL, {}, [first, second])
    assert disagreement(case, real) is None
    return predict(case)


def test_random_programs_under_join(real: RealRanks) -> None:
    for seed in range(40):
        case = draw_join_case(random.Random(seed))
        assert disagreement(case, real) is None, case


@pytest.mark.parametrize("initial", [True, False], ids=["by-world-size", "by-alive"])
def test_the_last_rank_trains_alone(real: RealRanks, initial: bool) -> None:
    """Its gradients are its own, halved where they are divided by the initial world size."""
    alone = [["join", initial, False], *iterations(0, 1), ["zero", True], *iterations(2)]
    early = [["join", initial, False], *iterations(0), ["leave"]]
    steps = agreed(real, early, [*alone, ["leave"]])
    [term] = steps[1][8].gradients["m.head"].terms or ()
    assert term.averaged and term.absent == {0}
    assert float(term.factor) / 2**term.divided == (0.5 if initial else 1.0)
    shadows = [e.op for e in steps[0][-1].events if e.origin == DDP_JOIN]
    assert shadows.count("broadcast") == 3  # two of the rebuild, and the last joiner's parameters


def test_traffic_of_a_join(real: RealRanks) -> None:
    program = [["join", True, False], *iterations(0), ["leave"], *iterations(1)]
    steps = agreed(real, program, program)[0]
    sent = [[(e.op, e.origin, e.root) for e in step.events] for step in steps]
    assert all(origin == DDP_CONSTRUCTOR for _, origin, _ in sent[0])
    alive, common = ("all_reduce", DDP_JOIN, None), ("all_reduce", DDP_JOIN, None)
    # Buffers come from the highest rank that is alive, where they come from rank 0 otherwise.
    assert sent[2] == [alive, common, ("broadcast", DDP_BUFFERS, 1), ("all_reduce", DDP_JOIN, None)]
    assert [op for op, _, _ in sent[4]] == ["all_reduce", "all_reduce", "broadcast"]
    # Torch never takes the configuration back: forwards after the block go on announcing themselves.
    assert [op for op, origin, _ in sent[5] if origin == DDP_JOIN] == ["all_reduce"] * 3


def test_throwing_on_early_termination(real: RealRanks) -> None:
    steps = agreed(
        real,
        [["join", True, True], *iterations(0), ["leave"]],
        [["join", True, True], *iterations(0), ["forward", "grad", True, None]],
    )
    assert steps[0][-1].error == "Rank 0 exhausted all inputs"
    assert steps[1][-1].error.startswith("Detected at least one rank that exhausted inputs")


def test_after_a_join_gradients_are_averages_again(real: RealRanks) -> None:
    block = [["join", False, False]]
    first = [*block, *iterations(0), ["leave"], ["zero", True], ["skip", 1], *iterations(2)]
    second = [*block, *iterations(0, 1), ["leave"], ["zero", True], *iterations(2)]
    case = Case(MODEL, {}, [first, second])
    assert disagreement(case, real) is None
    predictor = Predictor(0, case)
    predictor.run(first)
    assert set(predictor.ddp.gradient_states.values()) == {AVERAGED}


def test_who_leads_a_block() -> None:
    block = JoinBlock({0: (True, False, True), 1: (True,), 2: (False, True)})
    assert [sorted(block.absent(i)) for i in range(4)] == [[], [1], [1, 2], [0, 1, 2]]
    assert [block.leader(i) for i in range(3)] == [2, 2, 0]
    assert [block.synchronizes(i) for i in range(3)] == [True, True, True]


@pytest.mark.parametrize("present", [0, 1, 2])
def test_the_layout_of_rebuilt_buckets_is_the_roots(real: RealRanks, present: int) -> None:
    """A root without inputs brings the order of registration, for all ranks; one with inputs its own order."""
    order = ["m.a", "m.c", "m.b"]
    model = {"params": [[name, [size], "float32", True] for name, size in (("m.a", 300), ("m.b", 5), ("m.c", 700))], "buffers": []}
    step = [["forward", "grad", True, order], ["backward", [0], False], ["zero", True]]
    steps = [*step, ["forward", "grad", True, order], ["backward", [1], False]]
    programs = [[["join", True, False], *(steps if rank == present else []), ["leave"]] for rank in range(3)]
    case = Case(model, {"bucket_cap_mb": 0.001}, programs)
    assert disagreement(case, real) is None
    sent = predict(case)[present][6].events
    buckets = [event.numel for event in sent if event.origin == "ddp-bucket"]
    assert buckets == ([705, 300] if present == 0 else [300, 705])
