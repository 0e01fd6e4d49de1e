"""What a predicted run says beside its events: what it did not follow, what may differ between ranks, what was read too early."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpreted import predicted

from ddp_audit.explore.exact import Run, expressions

GIVEN_TO_A_LIBRARY = {
    "a function that calls itself": ("def make():\n    return make()\n", False),
    "functions that call each other and send": ("def make():\n    return other()\ndef other():\n    make()\n    dist.barrier()\n", True),
    "a function that counts": ("def make():\n    return len([1])\n", False),
    "a class whose constructor sends": ("class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        dist.barrier()\ndef make():\n    return Net()\n", True),
    "a function that sends": ("def make():\n    dist.barrier()\n", True),
    "a function that calls what is outside of it": ("def outer():\n    def inner():\n        dist.barrier()\n    def make():\n        inner()\n    return make\nmake = outer()\n", True),
    "a function that calls something harmless outside of it": ("def outer():\n    def inner():\n        return 1\n    def make():\n        inner()\n    return make\nmake = outer()\n", False),
}  # fmt: skip


@pytest.mark.parametrize(("text", "may_send"), GIVEN_TO_A_LIBRARY.values(), ids=GIVEN_TO_A_LIBRARY)
def test_a_function_that_a_library_is_given_may_send_when_it_sends(text: str, may_send: bool, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"import pandas\n{text}pandas.DataFrame().apply(make)\n")
    assert not_followed(run) == may_send


def not_followed(run: Run) -> bool:
    return any("is not followed" in doubt.what for doubt in run.doubts[0])


@pytest.mark.parametrize(
    ("call", "may_send"),
    [
        ("(data + 1).bit_count()", False),
        ("max(data, 3).run()", False),
        ("[data, 1, 'a', None, torch.ones(2)][data].run()", False),
        ("[data, dist.barrier][data]()", True),
        ("{'a': 1, 'b': print}[str(data)]()", False),
        ("{'a': 1, 'b': lambda: dist.barrier()}[str(data)]()", True),
    ],
)
def test_what_is_computed_of_numbers_and_data_sends_nothing(call: str, may_send: bool, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"import json\ndata = json.loads(os.environ['A'])\n{call}\n")
    assert not_followed(run) == may_send


def test_a_rank_that_was_not_asked_for_is_not_read_too_early(tmp_path: Path) -> None:
    text = "dist.destroy_process_group()\nseveral = False\nn = dist.get_rank() if {} else 5\ndist.init_process_group()\ndef use():\n    return range(n)\nuse()\n"
    assert predicted(tmp_path, text.format("several")).early_uses == {}
    asked = predicted(tmp_path, text.format("dist.is_initialized()")).early_uses
    lines = (tmp_path / "script.py").read_text().splitlines()
    read, use = (
        1 + next(n for n, line in enumerate(lines) if words in line) for words in ("if dist.is_initialized()", "return range(n)")
    )
    assert [(where.line, line) for where, (_, line) in asked.items()] == [(read, use)]


@pytest.mark.parametrize(
    ("model", "whole"),
    [
        ("torchvision.models.resnet18()", False),
        ("timm.create_model('x')", False),
        ("nn.Linear(2, 2)", True),
        ("some_library.Net()", False),
    ],
)
def test_a_run_with_a_model_of_a_library_is_not_whole(model: str, whole: bool, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"import timm, torchvision, some_library\nmodel = DDP({model})\n")
    assert (run.opaque, run.is_whole) == (not whole, whole)


@pytest.mark.parametrize(
    ("made", "may_differ"),
    [
        ("torch.arange(n)", False),
        ("torch.arange(0, n, 2)", False),
        ("torch.arange(5)", False),
        ("torch.zeros(n)", False),
        ("torch.eye(4)", False),
        ("torch.linspace(0, 1, 5)", False),
        ("torch.randperm(5)", True),
        ("torch.randint(0, 9, (3,))", True),
        ("torch.rand(3)", True),
    ],
)
def test_only_what_is_drawn_may_differ_between_ranks(made: str, may_differ: bool, tmp_path: Path) -> None:
    text = f"import json\nn = json.loads(os.environ['A'])\nx = {made}\nif x.sum() > 3:\n    dist.barrier()\n"
    assert bool(predicted(tmp_path, text, both_ways=True).variants) == may_differ


@pytest.mark.parametrize("name", ["torch.distributed.algorithms.Join", "torch.distributed.algorithms.join.Join"])
@pytest.mark.parametrize("joined", ["[model]", "joinables=(model,)"])
def test_one_model_under_join_is_followed(name: str, joined: str, tmp_path: Path) -> None:
    place, _, last = name.rpartition(".")
    text = f"from {place} import {last}\nmodel = DDP(nn.Linear(4, 1))\nwith {last}({joined}):\n    for _ in range(2 + rank):\n        model(torch.ones(2, 4)).sum().backward()\n"
    run = predicted(tmp_path, text)
    assert (run.kind, run.bounds) == ("completes", [])
    assert len(run.collectives(0)) == len(run.collectives(1))


def test_several_models_under_join_are_not_followed(tmp_path: Path) -> None:
    text = "from torch.distributed.algorithms.join import Join\na, b = DDP(nn.Linear(4, 1)), DDP(nn.Linear(4, 1))\nwith Join([a, b]):\n    a(torch.ones(2, 4)).sum().backward()\n"
    run = predicted(tmp_path, text)
    assert any("Join is not followed" in bound for bound in run.bounds)


def test_reductions_that_are_delayed_are_followed_where_their_parameters_are_known(tmp_path: Path) -> None:
    options = "delay_all_reduce_named_params={}, param_to_hook_all_reduce=net.bias"
    text = f"net = nn.Linear(4, 3)\nmodel = DDP(net, {options})\nmodel(torch.ones(2, 4)).sum().backward()\n"
    known = predicted(tmp_path, text.format("[('weight', net.weight)]"))
    assert ([e.numel for e in known.collectives(0) if e.op == "all_reduce"], known.bounds) == ([12, 15], [])
    for pairs in (
        "[('weight', net.weight, 1)]",
        "[('weight', net.weight), 5]",
        "[(net.weight, 'weight')]",
        "torch.load('pairs.pt')",
    ):
        run = predicted(tmp_path, text.format(pairs))
        assert any("whose reduction is delayed are not known" in bound for bound in run.bounds), pairs


def test_the_latest_forward_is_reduced_first_also_where_its_wrapper_was_made_anew(tmp_path: Path) -> None:
    text = "one, two = nn.Linear(4, 3), nn.Linear(5, 2)\na = DDP(one)\nout = a(torch.ones(2, 4)).sum()\nb = DDP(two)\n{}out = out + b(torch.ones(2, 5)).sum()\nout.backward()\n"
    for anew in ("", "c = DDP(one)\n"):
        run = predicted(tmp_path, text.format(anew))
        assert [event.numel for event in run.collectives(0) if event.op == "all_reduce"] == [12, 15], anew


def test_a_run_that_a_rank_leaves_by_an_error_is_not_whole(tmp_path: Path) -> None:
    assert predicted(tmp_path, "dist.barrier()\n").is_whole
    assert not predicted(tmp_path, "dist.barrier()\nraise ValueError('no')\n").is_whole


@pytest.mark.parametrize("value", ["None", "False", "True"])
def test_a_wrapper_that_is_told_to_compares_and_sends_nothing_at_first(value: str, tmp_path: Path) -> None:
    run = predicted(tmp_path, f"model = DDP(nn.Linear(2, 2), init_sync={value}, static_graph=None, find_unused_parameters=None)\n")
    assert bool(run.collectives(0)) == (value == "True")


@pytest.mark.parametrize(
    ("feedback", "warm", "fails"), [(False, False, False), (True, False, True), (False, True, True), (True, True, True)]
)
def test_power_sgd_from_the_first_step_on(feedback: bool, warm: bool, fails: bool, tmp_path: Path) -> None:
    state = f"PowerSGDState(None, 1, 1, use_error_feedback={feedback}, warm_start={warm})"
    run = predicted(
        tmp_path, f"from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState\nstate = {state}\n"
    )
    assert bool(run.raised) == fails


def test_what_a_thing_that_is_not_known_makes_of_an_output_depends_on_it_alone(tmp_path: Path) -> None:
    text = "judge = torch.load('judge.pt')\na, b = DDP(nn.Linear(4, 1)), DDP(nn.Linear(2, 2))\nloss = judge(a(torch.ones(2, 4))).mean() * 2\nother = judge(1)\n(loss + other.mean()).backward()\n"
    run = predicted(tmp_path, text)
    assert [event.numel for event in run.collectives(0) if event.op == "all_reduce"] == [5]


def test_the_loss_of_a_thing_that_is_not_known_is_reduced(tmp_path: Path) -> None:
    text = "criterion = torch.load('criterion.pt')\nmodel = DDP(nn.Linear(4, 1))\nloss = criterion(model(torch.ones(2, 4)), 1)\nloss.backward()\n"
    assert [event.numel for event in predicted(tmp_path, text).collectives(0)][-1] == 5


def test_a_method_of_a_class_that_may_stand_above_finds_the_classes_above_itself(tmp_path: Path) -> None:
    text = "import other\nclass A:\n    def n(self):\n        super().__init__()\n        return 3\nclass B(other.bases()[0]):\n    n = A.n\n"
    run = predicted(tmp_path, f"{text}dist.all_reduce(torch.ones(B().n()))\n")
    assert ([event.numel for event in run.collectives(0)], run.cut) == ([3], {})


def test_a_list_that_holds_itself_is_looked_into_once(tmp_path: Path) -> None:
    text = "import other\na = [torch.ones(2)]\nfor _ in range(60):\n    a.append(a)\nother.use(a)\ndist.barrier()\n"
    run = predicted(tmp_path, text)
    assert (run.cut, len(run.collectives(0))) == ({}, 1)


def test_an_error_of_the_interpreter_itself_cuts_a_run_and_is_raised_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object, **named: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(expressions, "binary", fails)
    monkeypatch.delenv("DDP_AUDIT_DEBUG", raising=False)
    run = predicted(tmp_path, "dist.barrier()\nx = 1 + 1\ndist.barrier()\n")
    assert [why.partition(" at ")[0] for why in run.cut.values()] == ["ZeroDivisionError"] * 2 and len(run.collectives(0)) == 1
    monkeypatch.setenv("DDP_AUDIT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        predicted(tmp_path, "x = 1 + 1\n")


def test_a_lookup_of_one_number_is_a_row_and_a_layer_of_no_dimension_is_not_known(tmp_path: Path) -> None:
    run = predicted(
        tmp_path, "dist.all_reduce(nn.Embedding(10, 3)(torch.tensor(1)))\ndist.all_reduce(nn.Linear(4, 3)(torch.tensor(1.0)))\n"
    )
    assert [event.numel for event in run.collectives(0)] == [3, None]


def test_a_dict_that_holds_itself_is_made_into_plain_values_to_a_depth(tmp_path: Path) -> None:
    text = "from dataclasses import asdict, dataclass\n@dataclass\nclass D:\n    d: dict\nd = {}\nd['d'] = d\nx = asdict(D(d))\ndist.barrier()\n"
    run = predicted(tmp_path, text)
    assert (run.cut, len(run.collectives(0))) == ({}, 1)
