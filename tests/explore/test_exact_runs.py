"""Predicted runs against real ones: programs that contradict folklore, a GPT schedule, the reference trainer's hazards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddp_audit.audit import Options
from ddp_audit.compare.predicted import AgreedToEnd, Disagrees
from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.events import GROUP, Event
from ddp_audit.explore.exact import Bounds, Run, predict
from ddp_audit.predicted import against_record, job_of

pytestmark = pytest.mark.traced

HERE = Path(__file__).parent
FOLKLORE = sorted((HERE / "folklore").glob("*.py"))
# An error that is caught in a backward leaves a reduction open, so that one comes last in the process that runs them all.
ORDER = sorted(FOLKLORE, key=lambda path: (path.stem == "caught_error_in_backward", path))
TRAINER = HERE.parent.parent / "trainer" / "ddp_audit_trainer" / "train.py"


def predicted(script: Path, *settings: str, steps: int | None = None) -> Run:
    """The predicted run of a script on two ranks, options at their defaults or as set."""
    job = job_of([script], Options(settings=settings, defaults_hold=True), bounds=Bounds(steps=steps))
    assert job is not None
    return predict(job)


def trace(folder: Path, *command: str, **environment: str) -> RecordedRun:
    """A real run of two CPU ranks, recorded; ended by the tracer where nothing moves for three seconds."""
    pytest.importorskip("torch")
    from ddp_audit.trace.store import load_run

    words = ["trace", "--no-check", "--on-stall", "kill", "--stall-after", "3", "--dir", str(folder / "trace"), "--"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment}
    whole = [sys.executable, "-m", "ddp_audit", *words, *launch]
    subprocess.run(whole, cwd=HERE, env=variables, capture_output=True, text=True, timeout=100)
    return load_run(folder / "trace")


# ---- folklore


@pytest.fixture(scope="module")
def folklore_record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RecordedRun]:
    """Each program's part of one recorded run of all of them, one after another in the same two processes."""
    folder = tmp_path_factory.mktemp("folklore")
    whole = trace(folder, str(HERE / "folklore_driver.py"), str(folder), *map(str, ORDER))
    parts = {rank: _split(run.events) for rank, run in whole.ranks.items()}
    assert all(len(found) == len(ORDER) for found in parts.values())
    return {
        script.stem: RecordedRun(2, {rank: RankRun(rank, found[number], EXITED, 0) for rank, found in parts.items()})
        for number, script in enumerate(ORDER)
    }


def _split(events: Sequence[Event]) -> list[list[Event]]:
    """The events of a rank, anew from each process group on."""
    found: list[list[Event]] = []
    for event in events:
        if event.kind == GROUP and event.detail.get("action") == "init":
            found.append([])
        if found:
            found[-1].append(event)
    return found


def test_there_are_twelve_programs() -> None:
    assert len(FOLKLORE) >= 12


@pytest.mark.parametrize("name", [path.stem for path in FOLKLORE])
def test_folklore_is_predicted_event_by_event(name: str, folklore_record: dict[str, RecordedRun]) -> None:
    run = predicted(HERE / "folklore" / f"{name}.py")
    agreement = against_record(run, folklore_record[name])
    assert isinstance(agreement.result, AgreedToEnd), agreement.result
    assert agreement.compared == {rank: len(run.collectives(rank)) for rank in (0, 1)}
    assert min(agreement.compared.values()) >= 3
    assert run.kind == "completes"


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("no_sync_around_forward_alone", True),
        ("two_forwards_two_backwards", True),
        ("retained_graph_twice", True),
        ("inner_module_trains_alone", True),
        ("no_sync_around_backward", False),
        ("dropped_forward_arms_the_reducer", False),
        ("accumulation_leftovers", False),
        ("rank_0_evaluates_and_recovers", False),
    ],
)
def test_whose_steps_use_local_gradients(name: str, local: bool) -> None:
    assert bool(predicted(HERE / "folklore" / f"{name}.py").local_steps()) is local


def test_a_prediction_of_another_program_does_not_agree(folklore_record: dict[str, RecordedRun]) -> None:
    run = predicted(HERE / "folklore" / "no_sync_around_backward.py")
    agreement = against_record(run, folklore_record["no_sync_around_forward_alone"])
    assert isinstance(agreement.result, Disagrees)


# ---- a GPT schedule with an evaluation by rank 0


def test_an_evaluation_before_a_later_step_heals_itself() -> None:
    run = predicted(HERE / "nanogpt_schedule.py")
    assert run.kind == "completes"
    assert [d.kind for d in run.divergences()] == ["crossed"]
    assert run.local_steps() == []


def test_an_evaluation_between_the_first_and_the_second_step_aborts() -> None:
    run = predicted(HERE / "nanogpt_schedule.py", "eval_interval=1")
    assert run.kind == "aborts"
    stopped = {rank: run.sequences[rank][position] for rank, position in run.stops.items()}
    assert [stopped[rank].origin for rank in (0, 1)] == ["ddp-buffers", "ddp-rebuild"]


def test_without_a_mask_buffer_it_completes() -> None:
    run = predicted(HERE / "nanogpt_schedule.py", "eval_interval=1", "flash=1")
    assert run.kind == "completes"
    assert run.divergences() == []


@pytest.mark.parametrize(("setting", "collectives"), [("eval_interval=4", 17), ("eval_interval=1", 6)])
def test_the_schedule_is_predicted_event_by_event(tmp_path: Path, setting: str, collectives: int) -> None:
    script = HERE / "nanogpt_schedule.py"
    agreement = against_record(predicted(script, setting), trace(tmp_path, str(script), SCHEDULE=setting))
    assert isinstance(agreement.result, AgreedToEnd), agreement.result
    assert set(agreement.compared.values()) == {collectives}


def test_power_sgd_is_predicted_event_by_event(tmp_path: Path) -> None:
    script = HERE / "power_sgd_schedule.py"
    run = predicted(script)
    assert run.kind == "completes"
    agreement = against_record(run, trace(tmp_path, str(script)))
    assert isinstance(agreement.result, AgreedToEnd), agreement.result
    assert set(agreement.compared.values()) == {30}


# ---- the reference trainer

_MANUAL = ("attention=manual",)
HAZARDS = {
    "none": ("completes", 26, ()),
    "rank0-eval": ("completes", 32, _MANUAL),
    "rank0-eval-barrier": ("hangs", 15, _MANUAL),
    "rank0-eval-grad": ("hangs", 16, _MANUAL),
    "flag-after-forward": ("completes", 26, ()),
    "no-sync-backward-only": ("completes", 34, ()),
    "wrapper-bypassed": ("completes", 16, ()),
    "no-sampler": ("completes", 45, ()),
    "no-set-epoch": ("completes", 26, ()),
    "skip-all-reduce": ("hangs", 5, ()),
    "uneven-batches": ("aborts", 15, ()),
    "reduce-op-differs": ("completes", 26, ()),
    "params-differ": ("completes", 26, ()),
    "rank0-clip": ("completes", 26, ()),
}


@pytest.mark.parametrize("hazard", HAZARDS)
def test_how_the_trainer_ends_under_its_hazards(hazard: str) -> None:
    kind, collectives, settings = HAZARDS[hazard]
    run = predicted(TRAINER, f"hazard={hazard}", "device=cpu", *settings)
    assert run.kind == kind
    reached = {rank: events[: run.stops.get(rank, len(events)) + 1] for rank, events in run.sequences.items()}
    assert {sum(e.kind == "collective" for e in events) for events in reached.values()} == {collectives}


def test_the_trainer_that_leaves_early_hangs_where_one_rank_decides_alone() -> None:
    job = job_of([TRAINER], Options(settings=("hazard=early-exit", "device=cpu"), defaults_hold=True))
    assert job is not None
    run = predict(job, both_ways=True)
    assert [(v.assumption.text, v.run.kind) for v in run.variants] == [("stop", "hangs")]


@pytest.mark.parametrize("hazard", ["rank0-eval", "uneven-batches", "skip-all-reduce"])
def test_the_trainer_is_predicted_event_by_event(tmp_path: Path, hazard: str) -> None:
    settings = [word for setting in HAZARDS[hazard][2] for word in (f"--{setting.split('=')[0]}", setting.split("=")[1])]
    recorded = trace(tmp_path, "-m", "ddp_audit_trainer.train", "--device", "cpu", "--hazard", hazard, *settings)
    agreement = against_record(predicted(TRAINER, f"hazard={hazard}", "device=cpu", *HAZARDS[hazard][2]), recorded)
    assert isinstance(agreement.result, AgreedToEnd), agreement.result
    assert set(agreement.compared.values()) == {HAZARDS[hazard][1]}
