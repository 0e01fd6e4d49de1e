"""Hooks, moves, delays and failures, named: what a wrapper does after them, on the machine and on real DDP."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from agreement import brief, disagreement, outcome_disagreement, predicted_outcome
from predictor import Case, Predictor
from real_ranks import WORLD_SIZE, RealRanks

from ddp_audit.machine.ddp import AVERAGED, LOCAL, Ddp
from ddp_audit.machine.module import ModuleSpec, ParamSpec

MODEL: dict[str, Any] = {
    "params": [["m.backbone", [4, 2], "float32", True], ["m.head", [3], "float32", True]],
    "buffers": [["mask", 5, "float32"]],
}
FORWARD = ["forward", "grad", True, None]


def backward(number: int, *fails_at: str) -> list[Any]:
    return ["backward", [number], False, *fails_at]


def agreed(real: RealRanks, program: list[list[Any]], options: dict[str, Any] | None = None) -> Predictor:
    """The machine after a program that it predicts as torch does; its errors are in `errors`."""
    case = Case(MODEL, options or {}, [program] * WORLD_SIZE)
    assert disagreement(case, real) is None
    predictor = Predictor(0, case)
    predictor.steps = predictor.run(program)
    return predictor


# What a hook leaves: whether gradients are averages, and the power of the world size that they are divided by.
HOOKS = {
    "allreduce_hook": (AVERAGED, 0),
    "fp16_compress_hook": (AVERAGED, 0),
    "noop_hook": (LOCAL, 0),
    "sum": (AVERAGED, -1),
}


@pytest.mark.parametrize("view", [False, True], ids=["copied", "bucket-view"])
@pytest.mark.parametrize("name", HOOKS)
def test_comm_hooks(real: RealRanks, name: str, view: bool) -> None:
    """Torch leaves the division to the hook: one that only sums leaves gradients that are world-size times too large."""
    predictor = agreed(real, [["hook", name], FORWARD, backward(0)], {"gradient_as_bucket_view": view})
    state, divided = HOOKS[name]
    for parameter in ("m.backbone", "m.head"):
        [term] = predictor.ddp.terms(parameter) or ()
        assert predictor.ddp.gradient_state(parameter) == state
        assert term.divided == divided


def test_a_second_hook_is_refused(real: RealRanks) -> None:
    predictor = agreed(real, [["hook", "sum"], ["hook", "noop_hook"], FORWARD, backward(0)])
    assert [bool(step.error) for step in predictor.steps] == [False, False, True, False, False]


@pytest.mark.parametrize("change", [["assign"], ["move", "float64"]], ids=["load-by-assignment", "double"])
@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}], ids=str)
def test_replaced_parameters_are_never_reduced(real: RealRanks, change: list[Any], options: dict[str, Any]) -> None:
    """All gradients stay local, silently and for ever; buffers are still broadcast, in their new dtype."""
    program = [FORWARD, backward(0), ["zero", True], change, FORWARD, backward(1), ["zero", True], FORWARD, backward(2)]
    predictor = agreed(real, program, options)
    assert not any(step.error for step in predictor.steps)
    assert set(predictor.ddp.gradient_states.values()) == {LOCAL}
    sent = [brief(vars_of(event)) for step in predictor.steps[5:] for event in step.events if event.origin == "ddp-buffers"]
    assert sent == [f"ddp-buffers broadcast {'float64' if change[0] == 'move' else 'float32'}[5]"] * 2


def vars_of(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("origin", "op", "dtype", "numel")}


GRAD = ["autograd_grad", 0]
REDUCES = {
    "as it is": ([FORWARD, GRAD], True),
    "one replaced": ([FORWARD, ["replace", "m.head"], GRAD], True),
    "the only one replaced": ([["forward", "grad", True, ["m.head"]], ["replace", "m.head"], GRAD], False),
    "the only one replaced before": ([["replace", "m.head"], ["forward", "grad", True, ["m.head"]], GRAD], True),
    "all replaced": ([FORWARD, ["assign"], GRAD], False),
    "all moved before": ([["move", "float64"], FORWARD, GRAD], True),
    "the others frozen": ([FORWARD, ["freeze", "m.backbone", False], GRAD], True),
    "the only one frozen": ([["forward", "grad", True, ["m.head"]], ["freeze", "m.head", False], GRAD], False),
    "replaced, and another applied after": (
        [["forward", "grad", True, ["m.head"]], ["replace", "m.head"], ["extend", 0, ["m.backbone"]], GRAD],
        False,
    ),
    "one applied after": ([["forward", "grad", True, ["m.head"]], ["extend", 0, ["m.backbone"]], GRAD], True),
    "asked twice": ([FORWARD, GRAD, GRAD], True),
    "replaced, and then a backward": ([FORWARD, ["assign"], GRAD, backward(0)], True),
}


@pytest.mark.parametrize("name", REDUCES)
def test_gradients_that_are_asked_for_start_a_reduction_where_the_way_to_them_passes_the_sink(real: RealRanks, name: str) -> None:
    """`torch.autograd.grad` runs only the nodes on the way to the parameters; the sink of a static graph is one of those or not."""
    program, reduces = REDUCES[name]
    predictor = agreed(real, program, {"static_graph": True})
    assert any(event.origin == "ddp-unused-map" for step in predictor.steps for event in step.events) is reduces


@pytest.mark.parametrize("change, sends", [([], True), ([["replace", "m.head"]], False)], ids=["as-it-is", "replaced"])
def test_the_hook_of_a_delayed_reduction_fires_for_its_own_parameter(real: RealRanks, change: list[Any], sends: bool) -> None:
    predictor = agreed(real, [FORWARD, *change, GRAD], DELAY)
    assert bool(predictor.steps[-1].events) is sends


def test_a_move_of_some_parameters(real: RealRanks) -> None:
    """A parameter that has the dtype already keeps its hook; with unused parameters found, its bucket then meets the others."""
    model = {"params": [["a", [3], "float64", True], ["b", [2], "float32", True]], "buffers": []}
    program = [["move", "float64"], FORWARD, backward(0)]
    for options in ({}, {"find_unused_parameters": True}):
        case = Case(model, options, [program] * WORLD_SIZE)
        assert disagreement(case, real) is None
    assert Predictor(0, case).run(program)[-1].error == "Expected Float, got Double"


DELAY = {"delay_all_reduce_named_params": ["m.backbone"], "param_to_hook_all_reduce": "m.head"}


def test_delayed_reduction_ignores_no_sync_and_is_not_waited_for(real: RealRanks) -> None:
    """The head is ready first, so what is reduced is the buffer of the step before; this step's gradient is local."""
    predictor = agreed(real, [["enter"], FORWARD, backward(0), ["exit"]], DELAY)
    assert [e.numel for e in predictor.steps[3].events] == [8]
    assert predictor.ddp.gradient_state("m.backbone") == LOCAL
    assert predictor.ddp.gradients["m.backbone"].unsettled


@pytest.mark.parametrize("names", [["m.backbone", "m.head"], ["m.head"]], ids=["all", "all-that-train"])
def test_delaying_all_parameters(real: RealRanks, names: list[str]) -> None:
    """The constructor refuses where no other parameter is left; where only frozen ones are, every forward raises."""
    model = {**MODEL, "params": [["m.backbone", [4], "float32", len(names) > 1], ["m.head", [3], "float32", True]]}
    options = {"delay_all_reduce_named_params": names, "param_to_hook_all_reduce": "m.head"}
    case = Case(model, options, [[FORWARD]] * WORLD_SIZE)
    assert disagreement(case, real) is None
    assert Predictor(0, case).run([FORWARD])[-1].error


def test_an_exception_in_backward_is_final(real: RealRanks) -> None:
    """No later forward with gradients works, on any rank, until the private reset; forwards without gradients do."""
    fails = [FORWARD, backward(0), FORWARD, backward(1, "m.backbone")]
    predictor = agreed(real, [*fails, FORWARD, ["forward", "no_grad", False, None], FORWARD])
    assert [bool(step.error) for step in predictor.steps[4:]] == [True, True, False, True]
    predictor = agreed(real, [*fails, ["reset"], ["zero", True], FORWARD, backward(2)])
    assert not any(step.error for step in predictor.steps[5:])
    assert set(predictor.ddp.gradient_states.values()) == {AVERAGED}


def test_an_exception_before_any_gradient_is_harmless(real: RealRanks) -> None:
    predictor = agreed(real, [FORWARD, backward(0, "m.head"), FORWARD, backward(1)])
    assert [bool(step.error) for step in predictor.steps] == [False, False, True, False, False]
    assert set(predictor.ddp.gradient_states.values()) == {AVERAGED}


def test_a_reset_forgets_buckets_under_way(real: RealRanks) -> None:
    """A rank whose backward failed had sent a bucket that nobody met; after the reset it waits for the next ones alone."""
    fails = [FORWARD, backward(0, "m.backbone"), ["reset"], FORWARD, backward(1)]
    model = {**MODEL, "buffers": []}
    case = Case(model, {"bucket_cap_mb": 0.00001, "find_unused_parameters": True}, [[["barrier"]], fails])
    assert predicted_outcome(case).kind == "hangs"
    assert outcome_disagreement(case, real) is None


ALONE = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for change in sys.argv[1:]:
    net = torch.nn.Linear(2, 2)
    model = DDP(net)
    reduced = []

    def hook(state, bucket):
        reduced.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, hook)
    before = [id(p) for p in net.parameters()]
    model.to({"float64": torch.float64, "float32": torch.float32}.get(change, change))
    same = before == [id(p) for p in net.parameters()]
    model(torch.ones(1, 2, dtype=net.weight.dtype, device=net.weight.device)).sum().backward()
    print(change, len(reduced), same)
"""


def test_a_move_that_torch_can_make_without_a_gpu_ends_the_reductions() -> None:
    """A dtype swaps the data of a parameter, the meta device makes another parameter; a CUDA device was only read about."""
    pytest.importorskip("torch")
    words = [sys.executable, "-c", ALONE, "float32", "cpu", "float64", "meta"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:4] == ["float32 1 True", "cpu 1 True", "float64 0 True", "meta 0 False"], done.stderr
    for dtype, reduced in ((None, 0), ("float64", 0), ("float32", 1)):
        ddp = Ddp(ModuleSpec((ParamSpec("weight", 4), ParamSpec("bias", 2))))
        ddp.construct()
        ddp.move(dtype)
        assert len(ddp.backward([ddp.forward().handle])) == reduced


def test_gradients_that_a_rank_changes_are_local_until_they_are_averaged_again(real: RealRanks) -> None:
    step = [FORWARD, backward(0)]
    edited = agreed(real, [*step, ["edit"]])
    assert edited.ddp.gradient_state("m.head") == LOCAL
    again = agreed(real, [*step, ["edit"], FORWARD, backward(1)])
    assert again.ddp.gradient_state("m.head") == AVERAGED
    inside = [["enter"], FORWARD, backward(0), ["edit"], ["exit"], FORWARD, backward(1), ["edit"], FORWARD, backward(2)]
    assert agreed(real, inside).ddp.gradient_state("m.head") == AVERAGED
    short = Ddp(ModuleSpec((ParamSpec("weight", 4),)), keep_sources=False)
    short.backward([short.forward().handle])
    assert short.step() == []
    short.edit_gradients()
    assert short.step() == ["weight"]
    short.backward([short.forward().handle])
    assert short.step() == []
