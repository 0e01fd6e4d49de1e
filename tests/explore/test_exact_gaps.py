"""Python and torch that predicted runs once passed over: each program's events are stated, predicted, and recorded in a real run.

What is still not followed must bound a run, and say where.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.audit import Options
from ddp_audit.compare.predicted import AgreedToEnd
from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import COLLECTIVE, Event
from ddp_audit.explore.exact import Bounds, Run, predict
from ddp_audit.predicted import against_record, job_of
from explore.test_exact_runs import HERE, _split, trace

# What each program sends behind the constructors of its wrappers: B is a bucket with its elements, R the broadcasts of a rebuild,
# a number an all-reduce of the program's own.
SENT = {
    "backward_hooks": "5 6 B51 R5 R1 5 6 B51 5 6 B51",
    "containers_of_many_kinds": "B132 R16 R1 B132 B132 9",
    "empty_containers": "B20 B40 R3 R1 B20 R5 R1 B40 5",
    "endless_generators": "B20 5 R3 R1 B20 B20 5 B20 B20 6 B20 B20 7 B20 B20 8 B20",
    "forward_hooks": "5 6 B51 R5 R1 5 6 B51 5 B51",
    "generators_resumed": "10 11 99 5 30 B20 31 R3 R1 B20 32 B20 30 B20 10 11 7 12 13 14 99 50 51 B20 50 B20 10 11 12 99 8 10 11 99",
    "learning_rate": "B20 5 7 R3 R1 B20 5 7 7 B20 5 7 7",
    "match_on_tuples": "B20 5 6 7 8 9 11 12 12",
    "monitored_barrier": "B20 monitored_barrier R3 R1 B20 monitored_barrier 5 monitored_barrier",
    "parameter_dict": "B36 R4 R1 B36 B36",
    "parameter_list": "B51 R6 R1 B51 B51 barrier",
    "parameter_subscript": "B87 R5 R1 B87 B87",
    "patterns_and_texts": "B20 12 23 54 32 53 48 54 51 54 52 52 53 53 53 5 6 7",
    "recurrent_state": "B914 R23 R1 B914 B914",
    "text_of_an_object": "B20 5 6 7",
}
# Programs of which what they send is not predicted yet, with what is missing; until then their runs are bounded.
OPEN = {
    "dropped_generator": ("5 B20", "when the last reference to a generator goes"),
    "generator_expression": ("5 B20 6 R3 R1 B20", "generator expressions that are asked for one element at a time"),
    "parameter_hook": ("5 B20 R3 R1 5 B20", "hooks on parameters, among the buckets"),
}
STATED = {**SENT, **{name: sent for name, (sent, _) in OPEN.items()}}
PROGRAMS = {path.stem: path for folder in ("gaps", "gaps_open") for path in (HERE / folder).glob("*.py")}
HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
"""


def sent(events: list[Event]) -> str:
    """Collectives behind the constructors, as in SENT."""
    words = []
    for event in events:
        if event.kind == COLLECTIVE and event.origin != "ddp-constructor":
            letter = {"ddp-bucket": "B", "ddp-rebuild": "R"}.get(str(event.origin), "")
            words.append(event.op if event.numel is None else f"{letter}{event.numel}")
    return " ".join(map(str, words))


def predicted(script: Path) -> Run:
    job = job_of([script], Options(defaults_hold=True), bounds=Bounds())
    assert job is not None
    return predict(job)


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The predicted run of a text, behind the head of the programs here."""
    monkeypatch.chdir(tmp_path)

    def predicted_of(text: str) -> Run:
        Path("train.py").write_text(HEAD + inspect.cleandoc(text) + "\n")
        return predicted(Path("train.py"))

    return predicted_of


@pytest.mark.parametrize("name", sorted(SENT))
def test_what_a_program_sends_is_predicted(name: str) -> None:
    run = predicted(HERE / "gaps" / f"{name}.py")
    assert {rank: sent(events) for rank, events in run.sequences.items()} == {0: SENT[name], 1: SENT[name]}
    assert (run.kind, run.raised, run.cut, run.certain, run.assumptions) == ("completes", {}, {}, {}, [])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=f"the one engine: {missing}"))
        for name, (_, missing) in OPEN.items()
    ],
)
def test_what_is_not_predicted_yet(name: str) -> None:
    run = predicted(PROGRAMS[name])
    assert {rank: sent(events) for rank, events in run.sequences.items()} == {0: STATED[name], 1: STATED[name]}


@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_is_not_predicted_yet_bounds_the_run_and_says_where(name: str) -> None:
    run = predicted(PROGRAMS[name])
    assert run.raised == {} and run.kind != "hangs"
    assert all(any(d.kind == "opaque" and f"{name}.py:" in d.what for d in doubts) for doubts in run.doubts.values())
    first = min(doubt.at for doubts in run.doubts.values() for doubt in doubts)
    right = STATED[name].split()
    certain = sent(run.sequences[0][:first]).split()
    assert certain == right[: len(certain)]  # nothing is certain that is wrong


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RecordedRun]:
    """Each program's part of one recorded run of all of them."""
    folder = tmp_path_factory.mktemp("gaps")
    whole = trace(folder, str(HERE / "folklore_driver.py"), str(folder), *(str(PROGRAMS[name]) for name in sorted(STATED)))
    parts = {rank: _split(run.events) for rank, run in whole.ranks.items()}
    assert all(len(found) == len(STATED) for found in parts.values())
    return {
        name: RecordedRun(2, {rank: RankRun(rank, found[number], EXITED, 0) for rank, found in parts.items()})
        for number, name in enumerate(sorted(STATED))
    }


@pytest.mark.traced
@pytest.mark.parametrize("name", sorted(STATED))
def test_what_a_program_sends_is_recorded(name: str, record: dict[str, RecordedRun]) -> None:
    assert {rank: sent(run.events) for rank, run in record[name].ranks.items()} == {0: STATED[name], 1: STATED[name]}
    if name in SENT:
        agreement = against_record(predicted(PROGRAMS[name]), record[name])
        assert isinstance(agreement.result, AgreedToEnd), agreement.result


def test_every_program_is_stated() -> None:
    assert sorted(STATED) == sorted(PROGRAMS)


# ---- what is not known bounds the run


def test_a_setting_that_a_scheduler_changes_is_not_known(run_of: Any) -> None:
    run = run_of(
        """
        model = DDP(torch.nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
        if optimizer.param_groups[0]["initial_lr"] == 0.1 and optimizer.param_groups[0].get("lr") < 0.05:
            dist.all_reduce(torch.ones(5))
        """
    )
    assert run.raised == {}
    assert [a.text for a in run.assumptions if "initial_lr" in a.text] != []


def test_a_setting_that_is_not_listed_raises_nothing(run_of: Any) -> None:
    run = run_of(
        """
        model = DDP(torch.nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for group in optimizer.param_groups:
            print(group["foreach"], group["differentiable"])
        """
    )
    assert run.raised == {}


@pytest.mark.parametrize(
    "call",
    [
        "DDP(net, bucket_cap_mb=int(open('cap').read()))",
        "DDP(net, find_unused_parameters=torch.load('options')['unused'])",
        "DDP(net, **torch.load('options'))",
        "DDP(net, None, None, 0, torch.load('options'))",
        "DDP(net, process_group=torch.load('options'))",
        "DDP(net, mixed_precision=object())",
    ],
)
def test_options_of_a_wrapper_that_are_not_known_bound_the_run(run_of: Any, call: str) -> None:
    run = run_of(
        f"""
        net = torch.nn.Linear(4, 4)
        model = {call}
        model(torch.ones(2, 4)).sum().backward()
        """
    )
    assert run.kind == "goes on" and not run.is_whole
    assert any("DistributedDataParallel" in bound and "train.py:7" in bound for bound in run.bounds), run.bounds
    assert set(run.certain.values()) == {0}


def test_options_by_position_are_read(run_of: Any) -> None:
    run = run_of(
        """
        model = DDP(torch.nn.BatchNorm1d(4), None, None, 0, False)
        model(torch.ones(2, 4)).sum().backward()
        """
    )
    assert run.kind == "completes" and "ddp-buffers" not in {str(event.origin) for event in run.collectives(0)}


@pytest.mark.parametrize(
    "call",
    ["C(**torch.load('options'))", "C(*torch.load('options'))", "make(**torch.load('options'))", "D(**torch.load('options'))"],
)
def test_arguments_that_are_not_known_may_be_any(run_of: Any, call: str) -> None:
    run = run_of(
        f"""
        import dataclasses

        @dataclasses.dataclass
        class D:
            send: bool = False

        class C:
            def __init__(self, send=False, **more):
                self.send = send

        def make(*, send=False):
            return C(send)

        made = {call}
        if made.send:
            dist.all_reduce(torch.ones(5))
        model = DDP(torch.nn.Linear(4, 4))
        """
    )
    assert [a.text for a in run.assumptions] == ["made.send"]


def test_generators_beyond_count_cut_the_run(run_of: Any) -> None:
    run = run_of(
        """
        def numbers():
            while True:
                yield 1

        model = DDP(torch.nn.Linear(4, 4))
        waiting = [numbers() for _ in range(200)]
        for one in waiting:
            next(one)
        """
    )
    assert "generators" in run.cut[0]


def test_a_generator_without_end_that_is_listed_cuts_the_run(run_of: Any) -> None:
    run = run_of(
        """
        def numbers():
            while True:
                yield 1

        model = DDP(torch.nn.Linear(4, 4))
        everything = list(numbers())
        dist.barrier()
        """
    )
    assert run.cut and run.kind == "goes on"


def test_a_generator_that_asks_itself_ends_in_an_exception(run_of: Any) -> None:
    run = run_of(
        """
        def numbers():
            yield next(holder[0])

        model = DDP(torch.nn.Linear(4, 4))
        holder = []
        holder.append(numbers())
        try:
            next(holder[0])
        except ValueError:
            dist.all_reduce(torch.ones(5))
        """
    )
    assert sent(run.sequences[0]) == "5"


def test_a_pattern_that_a_value_does_not_tell_is_an_assumption(run_of: Any) -> None:
    run = run_of(
        """
        model = DDP(torch.nn.Linear(4, 4))
        match torch.load("command"):
            case ("send", size):
                dist.all_reduce(torch.ones(5))
            case _:
                pass
        """
    )
    assert [a.text for a in run.assumptions] == ['torch.load("command")']


HOOKED = """
def send(*given):
    dist.all_reduce(torch.ones(5))

net = torch.nn.Sequential(torch.nn.Linear(4, 400), torch.nn.Linear(400, 400))
{hook}
model = DDP(net, bucket_cap_mb={size})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("hook", "size"),
    [
        ("net[1].register_full_backward_hook(send)", 0.1),  # several buckets
        ("net[1].register_full_backward_pre_hook(send)", 25),
        ("net[0].weight.register_post_accumulate_grad_hook(send)", 25),
        ("torch.nn.modules.module.register_module_forward_hook(send)", 25),
        ("net[0].register_state_dict_post_hook(send)", 25),
    ],
)
def test_hooks_whose_time_is_not_followed_bound_the_run(run_of: Any, hook: str, size: float) -> None:
    run = run_of(HOOKED.format(hook=hook, size=size))
    assert all(any(d.kind == "opaque" and "train.py:" in d.what for d in doubts) for doubts in run.doubts.values()), run.doubts


def test_a_hook_that_sends_nothing_bounds_nothing(run_of: Any) -> None:
    run = run_of(HOOKED.format(hook="net[0].weight.register_hook(lambda gradient: gradient * 2)", size=25))
    assert run.kind == "completes" and all(not doubts for doubts in run.doubts.values())
