"""Samplers, samples, schedulers, generators and hyper-parameters that differ: in real runs of two ranks, and while these go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddp_audit import events
from ddp_audit.compare.faults import SilentFault
from ddp_audit.compare.live_faults import LiveFaults
from ddp_audit.compare.run import EXITED, RUNNING, RankRun, RecordedRun
from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import Event, Site
from ddp_audit.trace import launcher
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.store import load_run

WORKER = str(Path(__file__).parent / "sharing_worker.py")
TORCHRUN = ["torchrun", "--nproc-per-node", "2", "--standalone"]
NEW = {"sampler-differs", "shared-samples", "scheduler-steps", "generator", "optimizer-differs"}


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(WORKER).read_text().splitlines(), 1) if text in line)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SilentFault]]:
    """The trace of the bad run, and what was called back while it went on."""
    folder = tmp_path_factory.mktemp("bad")
    enough = folder / "enough"
    live: list[SilentFault] = []

    def take(found: list[SilentFault]) -> None:
        live.extend(found)
        if {fault.kind for fault in live} >= {"shared-samples", "scheduler-steps"}:
            enough.touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "_FAULTS_EVERY", 0.1)
        patch.setattr(launcher, "_FAULTS_PAUSE", 0.0)
        ended = run_traced([*TORCHRUN, WORKER, "bad", str(enough)], directory=folder / "trace", stall_after=0, on_silent=take)
    assert ended.exit_code == 0
    return folder / "trace", live


def of(run: RecordedRun) -> dict[str, SilentFault]:
    return {fault.kind: fault for fault in silent_faults(run)}


@pytest.mark.traced
def test_a_bad_run(bad: tuple[Path, list[SilentFault]]) -> None:
    folder, _ = bad
    found = of(load_columns(folder)[0])
    assert found == of(load_run(folder))
    assert set(found) >= NEW
    assert all(found[kind].ranks == (0, 1) for kind in NEW)
    samples = found["shared-samples"]
    assert samples.site is not None and samples.site.line == line_of("for x in DataLoader")
    assert "samples in epoch 1" in samples.explanation
    assert sum(fault.kind == "shared-samples" for fault in silent_faults(load_columns(folder)[0])) == 1
    sampler = found["sampler-differs"]
    assert sampler.site is not None and sampler.site.line == line_of("for (x,) in DataLoader")
    assert "has seed 0 on rank 0 and 1 on rank 1" in sampler.explanation
    scheduler = found["scheduler-steps"]
    assert scheduler.site is not None and scheduler.site.line == line_of("scheduler.step()")
    assert "The StepLR at " in scheduler.explanation
    assert "stepped 20 times for 10 steps of its SGD" in scheduler.explanation
    generator = found["generator"]
    assert generator.site is not None and generator.site.line == line_of("torch.set_rng_state(states[0 if")
    assert sum(fault.kind == "generator" for fault in silent_faults(load_columns(folder)[0])) == 1
    made = f"sharing_worker.py:{line_of('lr=0.01 * (rank + 1)')}"
    assert "lr 0.01 on rank 0; lr 0.02 on rank 1" in found["optimizer-differs"].explanation
    assert f"{made}. Equal gradients" in found["optimizer-differs"].explanation


@pytest.mark.traced
def test_faults_are_reported_while_the_run_goes_on(bad: tuple[Path, list[SilentFault]]) -> None:
    folder, live = bad
    keys = [(fault.kind, fault.site) for fault in live]
    assert len(keys) == len(set(keys))
    assert {"shared-samples", "scheduler-steps"} <= {kind for kind, _ in keys}
    assert set(keys) <= {(fault.kind, fault.site) for fault in silent_faults(load_columns(folder)[0])}


@pytest.mark.traced
def test_a_good_run(tmp_path: Path) -> None:
    ended = run_traced([*TORCHRUN, WORKER, "good"], directory=tmp_path, stall_after=0)
    assert ended.exit_code == 0
    run, _ = load_columns(tmp_path)
    assert not NEW & set(of(run))
    kinds = {event.kind for _, event in run.all_events()}
    assert {events.SAMPLES, events.MADE, events.SCHEDULER, events.RESTORED} <= kinds


# Generated events


def run_of(*ranks: list[Event], complete: bool = True) -> RecordedRun:
    return RecordedRun(len(ranks), {rank: RankRun(rank, own) for rank, own in enumerate(ranks)}, complete=complete)


def one(kind: str, line: int = 3, **detail: object) -> Event:
    site = Site("train.py", line, "main")
    return Event(kind, site=site, stack=(site,), detail=detail)


def sampler(**detail: object) -> Event:
    return one(events.SAMPLER, **{"action": "iter", "seed": 0, "epoch": 0, "replicas": 2, "shuffle": True, **detail})


def test_epochs_of_samplers_are_compared_by_iteration() -> None:
    right = [sampler(epoch=epoch) for epoch in range(3)]
    wrong = [sampler(epoch=0), sampler(epoch=1), sampler(epoch=7)]
    fault = of(run_of(right, wrong))["sampler-differs"]
    assert "In iteration 3 at train.py:3 the DistributedSampler has epoch 2 on rank 0 and 7 on rank 1" in fault.explanation
    assert of(run_of(right, right)) == {}
    assert of(run_of(right, right[:2])) == {}  # not the same iterations
    assert of(run_of([sampler(epoch=1, shuffle=False)], [sampler(shuffle=False)])) == {}
    assert of(run_of([sampler(seed=None)], [sampler(seed=1)])) == {}  # an older trace


def test_what_is_compared_where_the_start_was_overwritten() -> None:
    right, wrong = [sampler(epoch=epoch) for epoch in range(9)], [sampler(epoch=epoch, seed=int(epoch == 7)) for epoch in range(9)]

    def ring_of(*ranks: list[Event], state: str = EXITED) -> dict[str, SilentFault]:
        run = run_of(*ranks)
        for one in run.ranks.values():
            one.state, one.lost = state, True
        return of(run)

    fault = ring_of(right, wrong[4:])["sampler-differs"]
    assert "In iteration 2 from the end at train.py:3 the DistributedSampler has seed 0 on rank 0 and 1 on" in fault.explanation
    assert ring_of(right, wrong[4:], state=RUNNING) == {}  # they need not be in the same iteration
    assert ring_of(right, right[4:]) == {}
    assert ring_of([scheduler(32, 8)], [scheduler(32, 8)])["scheduler-steps"].ranks == (0, 1)
    assert ring_of([samples(range(100))], [samples(range(80, 180), 1)]) == {}


def samples(of_rank: range, share: int = 0, **detail: object) -> Event:
    return one(events.SAMPLES, **{"epoch": 0, "share": share, "samples": " ".join(f"{n:012x}" for n in of_rank), **detail})


def test_samples_on_two_ranks_and_what_explains_them() -> None:
    assert (
        "Ranks 0 and 1 share 20 of 180 samples"
        in of(run_of([samples(range(100))], [samples(range(80, 180), 1)]))["shared-samples"].explanation
    )
    assert of(run_of([samples(range(100))], [samples(range(98, 200), 1)])) == {}  # the sampler's own padding, and one by chance
    assert of(run_of([samples(range(100))], [samples(range(100), 0)])) == {}  # two ranks of one share, as in tensor parallelism
    twice = [samples(range(100)), samples(range(50))]
    assert of(run_of(twice, [samples(range(80, 180), 1), samples(range(100, 150), 1)])) == {}  # a data set with duplicates


def scheduler(steps: int, of_optimizer: int, library: str = "") -> Event:
    detail = {"scheduler": "StepLR", "optimizer": "SGD", "steps": steps, "optimizer_steps": of_optimizer, "library": library}
    return one(events.SCHEDULER, **detail)


def test_schedulers_that_step_too_often_or_apart() -> None:
    assert of(run_of([scheduler(32, 8)], [scheduler(32, 8)]))["scheduler-steps"].ranks == (0, 1)
    assert of(run_of([scheduler(10, 10)], [scheduler(10, 10)])) == {}
    assert of(run_of([scheduler(2, 100)], [scheduler(2, 100)])) == {}  # an epoch each
    assert of(run_of([scheduler(11, 10)], [scheduler(11, 10)])) == {}  # a step that a scaler left out
    assert of(run_of([scheduler(8, 4)], [scheduler(8, 4)])) == {}  # too few
    assert of(run_of([scheduler(32, 8, "accelerate")], [scheduler(32, 8, "accelerate")])) == {}  # it counts processes
    fault = of(run_of([scheduler(20, 20)], [scheduler(14, 20)]))["scheduler-steps"]
    assert "stepped 20 times on rank 0 and 14 times on rank 1, and the SGD equally often" in fault.explanation
    assert of(run_of([scheduler(20, 20)], [scheduler(14, 20)], complete=False)) == {}


def restored(state: str, before: str, **detail: object) -> Event:
    return one(events.RESTORED, state=state, before=before, **detail)


def test_generators_that_a_resume_makes_equal() -> None:
    assert of(run_of([restored("a", "x")], [restored("a", "y")]))["generator"].ranks == (0, 1)
    assert of(run_of([restored("a", "x")], [restored("b", "y")])) == {}
    assert of(run_of([restored("a", "x")], [restored("a", "x")])) == {}  # they were equal before: seeded alike
    assert of(run_of([restored("a", "x")], [])) == {}
    own = restored("a", "x", own=True), restored("a", "y", own=True)
    assert of(run_of([own[0]], [own[1]])) == {}  # each goes back to where it was itself
    assert "generator" in of(run_of([own[0]], [restored("a", "y", own=False)]))  # rank 0 saved it
    seed, forward = one(events.SEED, 4, seed=1), one(events.FORWARD, 5, model="ddp0", grad=True)
    assert of(run_of([restored("a", "x"), seed, forward], [restored("a", "y"), forward])) == {}
    assert "generator" in of(run_of([restored("a", "x"), forward, seed], [restored("a", "y"), forward, seed]))


def optimizer(rate: float, step: int = 1) -> Event:
    settings = (f"lr {rate}", "nesterov False")
    return one(events.OPTIMIZER, 9, model="ddp0", at="step", step=step, joins=0, optimizer="SGD", hash="a", settings=settings)


def made(rate: float, line: int = 5) -> Event:
    return one(events.MADE, line, optimizer="SGD", settings=(f"lr {rate}", "nesterov False"))


def test_settings_that_differ_have_the_line_that_set_them() -> None:
    def said(*ranks: list[Event]) -> str:
        return of(run_of(*ranks))["optimizer-differs"].explanation

    assert "They are those of the constructor at train.py:5. " in said([made(0.1), optimizer(0.1)], [made(0.2), optimizer(0.2)])
    other = made(0.7, 6)
    two = said([made(0.1), other, optimizer(0.1)], [made(0.2), other, optimizer(0.2)])
    assert "They are those of the constructor at train.py:5. " in two
    later = said([made(0.1), optimizer(0.1)], [made(0.1), optimizer(0.2)])
    assert "The optimizer is made at train.py:5, and rank 1 changed them later, by an assignment or a state that" in later
    steps = said([made(0.1), scheduler(5, 5), optimizer(0.1)], [made(0.1), scheduler(5, 5), optimizer(0.2)])
    assert "rank 1 changed them later: the scheduler that steps at train.py:3, or an assignment." in steps
    assert "made at" not in said([optimizer(0.1)], [optimizer(0.2)])  # an older trace


def test_a_fault_is_sure_when_it_is_seen_again_some_steps_later() -> None:
    shared = SilentFault("shared-samples", (0, 1), Site("train.py", 3), "text")
    local = replace(shared, kind="gradients-not-reduced")
    live = LiveFaults()
    assert live.take([shared, local], 3) == []
    assert live.take([shared, local], 10) == []
    assert live.take([shared, local], 11) == [shared]
    assert live.take([shared, local], 60) == []  # an average of the parameters may still come
    assert live.take([shared, local], 67) == [local]
    assert live.take([shared, local], 900) == []


def test_a_fault_that_goes_away_begins_again() -> None:
    fault = SilentFault("same-samples", (0, 1), None, "text")
    live = LiveFaults()
    assert live.take([fault], 3) == live.take([], 9) == live.take([fault], 12) == live.take([fault], 19) == []
    assert live.take([fault], 20) == [fault]
