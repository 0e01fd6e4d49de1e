"""The machine against real DistributedDataParallel on gloo: equal programs on both ranks, by events and by gradients."""

from __future__ import annotations

import random
from typing import Any

import pytest
from agreement import brief, disagreement
from drawing import draw_case, draw_wide_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predictor import Case, Predictor
from real_ranks import WORLD_SIZE, RealRanks

from ddp_audit.machine.ddp import AVERAGED, LOCAL, MISSING

MODEL: dict[str, Any] = {
    "params": [["backbone", [4, 2], "float32", True], ["head", [3], "float32", True]],
    "buffers": [["mask", 5, "float32"]],
}
FORWARD = ["forward", "grad", True, None]
EVAL = ["forward", "no_grad", False, None]
STEP = [["step"], ["zero", True]]


@settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(choose=st.randoms(use_true_random=False))
def test_random_programs(real: RealRanks, choose: random.Random) -> None:
    case = draw_case(choose)
    assert disagreement(case, real) is None, case


def test_many_random_programs_without_shrinking(real: RealRanks) -> None:
    """The draws of `random.Random` are wider than those that hypothesis likes to start from."""
    for seed in range(200):
        case = draw_case(random.Random(seed))
        assert disagreement(case, real) is None, case


def test_random_programs_on_three_and_four_ranks(real: RealRanks) -> None:
    """Free orders of use, parameters used twice, and blocks under join, in which ranks without inputs may be any."""
    sizes = set()
    for seed in range(60):
        case = draw_wide_case(random.Random(f"wide/{seed}"))
        sizes.add(len(case.programs))
        assert disagreement(case, real) is None, case
    assert sizes == {3, 4}


def test_a_wrong_machine_is_found(real: RealRanks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reducer that forgets to stop expecting hooks must not pass: the second of two backward passes would be averaged."""
    from ddp_audit.machine.reducer import Reducer

    finalize = Reducer.finalize

    def forgetful(self: Reducer) -> None:
        finalize(self)
        self.expect_hooks = True
        self.ready = set()
        self.next_bucket = 0
        self.pending = [len(b) for b in self.buckets]

    monkeypatch.setattr(Reducer, "finalize", forgetful)
    case = Case(MODEL, {}, [[FORWARD, FORWARD, ["backward", [0], False], ["backward", [1], False]]] * WORLD_SIZE)
    assert disagreement(case, real) is not None


# The table of who may call what. Each row: the program, and the state of the gradients after it.

ROWS: dict[str, tuple[list[list[Any]], str]] = {
    "forward then backward": ([FORWARD, ["backward", [0], False]], AVERAGED),
    "forward outside, backward inside no_sync": ([FORWARD, ["enter"], ["backward", [0], False], ["exit"]], AVERAGED),
    "forward inside, backward outside no_sync": ([["enter"], FORWARD, ["exit"], ["backward", [0], False]], LOCAL),
    "flag cleared between forward and backward": ([FORWARD, ["flag", False], ["backward", [0], False]], AVERAGED),
    "flag set between forward and backward": (
        [["flag", False], FORWARD, ["flag", True], ["backward", [0], False]],
        LOCAL,
    ),
    "two forwards, one backward of the sum": ([FORWARD, FORWARD, ["backward", [0, 1], False]], AVERAGED),
    "two forwards, two backwards": ([FORWARD, FORWARD, ["backward", [0], False], ["backward", [1], False]], LOCAL),
    "forward and backward, twice": ([FORWARD, ["backward", [0], False], FORWARD, ["backward", [1], False]], AVERAGED),
    "backward twice with retain_graph": ([FORWARD, ["backward", [0], True], ["backward", [0], False]], LOCAL),
    "no_grad forward between forward and backward": ([FORWARD, EVAL, ["backward", [0], False]], AVERAGED),
    "dropped loss, then a no_sync step": ([FORWARD, ["enter"], FORWARD, ["backward", [1], False], ["exit"]], AVERAGED),
    "no_grad forward, then a no_sync step": ([EVAL, ["enter"], FORWARD, ["backward", [1], False], ["exit"]], LOCAL),
    "module bypassed": ([["module", "grad", True, None], ["backward", [0], False]], LOCAL),
    "dropped loss, then module bypassed": ([FORWARD, ["module", "grad", True, None], ["backward", [1], False]], AVERAGED),
    "autograd.grad": ([FORWARD, ["autograd_grad", 0]], MISSING),
    "local gradients, then a synchronized step without zero_grad": (
        [["enter"], FORWARD, ["backward", [0], False], ["exit"], FORWARD, ["backward", [1], False]],
        AVERAGED,
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "find-unused": {"find_unused_parameters": True},
    "static-graph": {"static_graph": True},
    "bucket-view": {"gradient_as_bucket_view": True},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("row", ROWS)
def test_who_may_call_what(real: RealRanks, row: str, options: str) -> None:
    program, expected = ROWS[row]
    warm = [FORWARD, ["backward", [0], False], *STEP]  # a static graph needs a synchronized step first
    shifted = [[op[0], [i + 1 for i in op[1]], op[2]] if op[0] == "backward" else op for op in program]
    shifted = [[op[0], op[1] + 1] if op[0] == "autograd_grad" else op for op in shifted]
    case = Case(MODEL, OPTIONS[options], [warm + shifted] * WORLD_SIZE)
    assert disagreement(case, real) is None
    predictor = Predictor(0, case)
    assert not any(step.error for step in predictor.run(case.programs[0]))
    assert set(predictor.ddp.gradient_states.values()) == {expected}


@pytest.mark.parametrize("options", ["default", "find-unused"])
def test_head_applied_past_the_wrapper(real: RealRanks, options: str) -> None:
    """Averaged by default; with find_unused_parameters the head counts as unused and is then marked ready twice."""
    program = [["forward", "grad", True, ["backbone"]], ["extend", 0, ["head"]], ["backward", [0], False]]
    case = Case(MODEL, OPTIONS[options], [program] * WORLD_SIZE)
    assert disagreement(case, real) is None
    predictor = Predictor(0, case)
    steps = predictor.run(program)
    if options == "default":
        assert set(predictor.ddp.gradient_states.values()) == {AVERAGED}
    else:
        assert steps[-1].error == "Expected to mark a variable ready only once"


def test_static_graph_must_not_begin_in_no_sync(real: RealRanks) -> None:
    program = [["enter"], FORWARD, ["backward", [0], False], ["exit"], FORWARD]
    case = Case(MODEL, {"static_graph": True}, [program] * WORLD_SIZE)
    assert disagreement(case, real) is None
    errors = [step.error for step in Predictor(0, case).run(program)]
    assert errors[3] == "expect_autograd_hooks_ INTERNAL ASSERT FAILED"
    assert errors[5].startswith("Expected to have finished reduction")


def test_unused_parameter_is_noticed_one_forward_late(real: RealRanks) -> None:
    program = [["forward", "grad", True, ["head"]], ["backward", [0], False], ["step"], FORWARD]
    case = Case(MODEL, {}, [program] * WORLD_SIZE)
    assert disagreement(case, real) is None
    predictor = Predictor(0, case)
    steps = predictor.run(program)
    assert [bool(step.error) for step in steps] == [False, False, False, False, True]
    assert predictor.ddp.gradient_states == {"backbone": MISSING, "head": LOCAL}


def test_buffers_follow_the_flag_of_the_forward_before(real: RealRanks) -> None:
    """Accumulation sends buffers in the first forward of a window only; evaluation in the first one only; then training not."""
    train = [FORWARD, ["backward", [0], False]]
    program = [*train, ["enter"], FORWARD, FORWARD, ["exit"], FORWARD, EVAL, EVAL, FORWARD, FORWARD]
    case = Case(MODEL, {"find_unused_parameters": True}, [program] * WORLD_SIZE)
    assert disagreement(case, real) is None
    steps = Predictor(0, case).run(program)
    sent = [len(step.events) for op, step in zip(program, steps[1:], strict=True) if op[0] == "forward"]
    assert sent == [1, 1, 0, 0, 1, 0, 0, 1]


# The traffic of a whole module, written out.

MULTI_NET: dict[str, Any] = {
    "params": [
        ["w1", [512, 512], "float32", True],
        ["b1", [512], "float32", True],
        ["norm_weight", [512], "float32", True],
        ["norm_bias", [512], "float32", True],
        ["w2", [512, 512], "float32", True],
        ["b2", [512], "float32", True],
        ["w3", [4, 512], "float32", True],
        ["b3", [4], "float32", True],
    ],
    "buffers": [["mean", 512, "float32"], ["var", 512, "float32"], ["count", 1, "int64"]],
}
CONSTRUCTOR = ["all_gather int64[1]", "broadcast int64[22]", "broadcast float32[529412]", "broadcast int64[1]"]
BUFFERS = ["broadcast float32[1024]", "broadcast int64[1]"]
REBUILD = ["broadcast int32[9]", "broadcast int32[2]"]
WHOLE = ["all_reduce float32[528388]"]
REBUILT = ["all_reduce float32[264708]", "all_reduce float32[263680]"]
MAP = ["all_reduce int32[8]"]
UNUSED = ["all_reduce float32[2564]", "all_reduce float32[263680]", "all_reduce float32[262144]", *MAP]
TRAFFIC: dict[str, list[list[str]]] = {
    "default": [CONSTRUCTOR, BUFFERS, WHOLE, [*REBUILD, *BUFFERS], REBUILT, BUFFERS, REBUILT],
    "find-unused": [CONSTRUCTOR, BUFFERS, UNUSED, BUFFERS, UNUSED, BUFFERS, UNUSED],
    "static-graph": [CONSTRUCTOR, BUFFERS, MAP + WHOLE, BUFFERS, WHOLE, [*REBUILD, *BUFFERS], REBUILT],
}


@pytest.mark.parametrize("options", TRAFFIC)
def test_traffic_of_a_module(real: RealRanks, options: str) -> None:
    """What torch issues is written out here, so that the machine and the recorder cannot be wrong together."""
    program = [op for i in range(3) for op in (FORWARD, ["backward", [i], False], ["zero", True])]
    case = Case(MULTI_NET, {**OPTIONS[options], "bucket_cap_mb": 1}, [program] * WORLD_SIZE)
    assert disagreement(case, real) is None
    result = real.run(case.programs, case.model, case.options)
    for rank in range(WORLD_SIZE):
        issued = [[brief(e).split(" ", 1)[1] for e in step["events"]] for step in result.steps[rank]]
        kept = [events for op, events in zip([["construct"], *program], issued, strict=True) if op[0] != "zero"]
        assert kept == TRAFFIC[options]


def test_no_sync_windows_of_a_module(real: RealRanks) -> None:
    def backward(number: int) -> list[Any]:
        return ["backward", [number], False]

    warm = [FORWARD, backward(0), FORWARD, backward(1)]
    window = [["enter"], FORWARD, backward(2), FORWARD, backward(3), ["exit"], FORWARD, backward(4), FORWARD]
    case = Case(MULTI_NET, {"bucket_cap_mb": 1}, [warm + window] * WORLD_SIZE)
    assert disagreement(case, real) is None
    result = real.run(case.programs, case.model, case.options)
    issued = [[brief(e).split(" ", 1)[1] for e in step["events"]] for step in result.steps[0]][5:]
    assert issued == [[], BUFFERS, [], [], [], [], [], REBUILT, BUFFERS]
