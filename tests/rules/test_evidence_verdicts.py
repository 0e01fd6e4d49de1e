"""What a recorded run says of findings about scale, data streams, statistics and devices: verdicts from its silent faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import (
    BACKWARD,
    BUFFERS,
    CLIP,
    COLLECTIVE,
    DRAWS,
    FACTOR,
    LABELS,
    LOADED,
    OUTSIDE,
    PLACE,
    READ,
    RECEIVED,
    STATISTICS,
    STEP,
    UNFINISHED,
    UNSCALED,
    WRAP,
    Event,
    Site,
)
from ddp_audit.findings import Finding
from ddp_audit.program import lower
from ddp_audit.rule import Context, load_rules
from ddp_audit.source.project import Project

RULES = {rule.code: rule for rule in load_rules()}


def finding_of(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """The finding of a rule in its own bad example, which is called train.py."""
    monkeypatch.chdir(folder)
    Path("train.py").write_text(RULES[code].bad)
    project = Project(["train.py"])
    (found,) = RULES[code].check(Context(lower(project, project.files[0])))
    return found


def event(kind: str, line: int, **detail: object) -> Event:
    site = Site("train.py", line)
    op = "all_reduce" if kind == COLLECTIVE else ""
    return Event(kind, op, site=site, stack=(site,), detail={"model": "ddp0", "joins": 0, **detail})


def run_of(*ranks: list[Event]) -> RecordedRun:
    return RecordedRun(len(ranks), {n: RankRun(n, events, EXITED, 0) for n, events in enumerate(ranks)}, complete=True)


def labels(line: int, count: int) -> list[Event]:
    return [event(LABELS, line, backward=n, labels=count, weight=1 / count) for n in range(3)]


@pytest.mark.parametrize(("other", "verdict"), [(30, "confirmed"), (10, "not-observed"), (0, "not-exercised")])
def test_means_over_labels(other: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP801", tmp_path, monkeypatch)
    line = finding.span.line
    run = run_of(labels(line, 10), labels(line, other) if other else labels(line + 50, 10))
    assert RULES["DDP801"].verify(finding, run) == verdict


@pytest.mark.parametrize(
    ("changed", "verdict"), [(True, "confirmed"), (False, "not-observed"), (None, "not-exercised"), ("", "not-exercised")]
)
def test_objects_that_came(changed: bool | None, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP214", tmp_path, monkeypatch)
    line = finding.span.line
    other = [event(RECEIVED, line if changed != "" else line + 9, changed=changed)]
    assert RULES["DDP214"].verify(finding, run_of([event(RECEIVED, line, changed=False)], other)) == verdict


def test_draws_after_a_state_was_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP310", tmp_path, monkeypatch)
    drawn, other = ([event(DRAWS, 9, forward=n, stream=f"{who} {n:x}") for n in range(3)] for who in ("one", "other"))
    assert RULES["DDP310"].verify(finding, run_of(drawn, drawn)) == "confirmed"
    assert RULES["DDP310"].verify(finding, run_of(drawn, other)) == "not-observed"
    assert RULES["DDP310"].verify(finding, run_of([], [])) == "not-exercised"


@pytest.mark.parametrize(
    ("factors", "replicas", "verdict"),
    [
        ([0.25, 4], 2, "confirmed"),
        ([0.25, 2], 2, "not-observed"),
        ([0.3], 2, "not-exercised"),
        ([0.25, 4], 4, "not-exercised"),
    ],
)
def test_the_number_of_ranks_in_a_loss(
    factors: list[float], replicas: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = finding_of("DDP807", tmp_path, monkeypatch)
    looked = [event(FACTOR, finding.span.line, factors=[factors], replicas=replicas, step=1)]
    run = run_of(*([*looked, _wrapped(n % 2)] for n in range(4)))
    run.groups.update({"even": (0, 2), "odd": (1, 3)})
    assert RULES["DDP807"].verify(finding, run) == verdict


def _wrapped(half: int) -> Event:
    return Event(WRAP, group=("even", "odd")[half], detail={"model": "ddp0"})


def test_draws_of_one_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP308", tmp_path, monkeypatch)
    drawn = [event(DRAWS, 9, forward=n, stream=f"{n:x}") for n in range(3)]
    other = [event(DRAWS, 9, forward=n, stream=f"own {n:x}") for n in range(3)]
    assert RULES["DDP308"].verify(finding, run_of(drawn, drawn)) == "confirmed"
    assert RULES["DDP308"].verify(finding, run_of(drawn, other)) == "not-exercised"  # without seeds and inputs


def factor(line: int, factors: list[float], ratio: float = 1.0, passes: int = 1, **detail: object) -> Event:
    known = {"mean": True, "hook": False, "replicas": 2, **detail}
    return event(FACTOR, line, step=1, passes=passes, factors=[factors], ratio=ratio, **known)


@pytest.mark.parametrize(
    ("factors", "ratio", "passes", "verdict"),
    [
        ([0.5], 1.0, 1, "confirmed"),
        ([0.5], 0.31, 1, "confirmed"),  # and clipped
        ([2.0], 1.0, 1, "confirmed"),
        ([], 1.0, 4, "confirmed"),  # four micro-batches that nothing divides
        ([0.25, 0.25], 1.0, 4, "confirmed"),
        ([], 1.0, 1, "not-observed"),
        ([0.5], 2.0, 1, "not-observed"),  # made up for after the reduction
        ([0.3], 1.0, 1, "not-exercised"),
    ],
)
def test_factors_of_a_loss(
    factors: list[float], ratio: float, passes: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = finding_of("DDP802", tmp_path, monkeypatch)
    here = [factor(finding.span.line, factors, ratio, passes)]
    assert RULES["DDP802"].verify(finding, run_of(here, here)) == verdict


def test_factors_that_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP802", tmp_path, monkeypatch)
    line = finding.span.line
    for one in (factor(line + 50, [0.5]), factor(line, [0.5], mean=False), factor(line, [0.5], hook=True)):
        assert RULES["DDP802"].verify(finding, run_of([one], [one])) == "not-exercised"


@pytest.mark.parametrize(("ratio", "verdict"), [(2.0, "confirmed"), (1.0, "not-observed"), (0.3, "not-exercised")])
def test_sums_of_gradients_on_top(ratio: float, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP110", tmp_path, monkeypatch)
    rank = [event(COLLECTIVE, finding.span.line), factor(1, [], ratio)]
    assert RULES["DDP110"].verify(finding, run_of(rank, rank)) == verdict


def test_statistics_of_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP402", tmp_path, monkeypatch)
    one, other = ([event(STATISTICS, 9, step=3, hash=value), event(COLLECTIVE, 12)] for value in "ab")
    assert RULES["DDP402"].verify(finding, run_of(one, other)) == "confirmed"
    assert RULES["DDP402"].verify(finding, run_of(one, one)) == "not-observed"
    assert RULES["DDP402"].verify(finding, run_of(one, [])) == "not-exercised"
    codes = [[event(BUFFERS, 9, step=3, at="evaluation", hashes=[f"book 8x4 {value}"]), event(COLLECTIVE, 12)] for value in "ab"]
    assert [fault.kind for fault in silent_faults(run_of(*codes))] == ["buffers-differ"]
    assert RULES["DDP402"].verify(finding, run_of(*codes)) == "not-exercised"  # other buffers


def test_parameters_beside_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP102", tmp_path, monkeypatch)

    def rank(*hashes: str) -> list[Event]:
        return [event(OUTSIDE, 20, step=step, at="step", hash=value) for step, value in enumerate(hashes, 1)]

    assert RULES["DDP102"].verify(finding, run_of(rank("a", "b"), rank("a", "c"))) == "confirmed"
    assert RULES["DDP102"].verify(finding, run_of(rank("a", "b"), rank("a", "b"))) == "not-observed"
    assert RULES["DDP102"].verify(finding, run_of(rank("a"), [])) == "not-exercised"


@pytest.mark.parametrize("code", ["DDP507", "DDP602"])
def test_models_on_one_device(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of(code, tmp_path, monkeypatch)
    ranks = [[event(PLACE, 9, devices=[name])] for name in ("cuda a", "cuda a")]
    assert RULES[code].verify(finding, run_of(*ranks)) == "confirmed"


@pytest.mark.parametrize(
    ("given", "unexpected", "verdict"),
    [(2, 2, "confirmed"), (2, 1, "not-observed"), (0, 0, "not-observed"), (0, None, "not-exercised")],
)
def test_loads_that_fit_nowhere(
    given: int, unexpected: int | None, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = finding_of("DDP703", tmp_path, monkeypatch)
    line = finding.span.line if unexpected is not None else 1
    run = run_of(*([event(LOADED, line, given=given, unexpected=unexpected)] for _ in range(2)))
    assert RULES["DDP703"].verify(finding, run) == verdict


@pytest.mark.parametrize(
    ("loaded", "verdict"), [("cuda GPU-0", "confirmed"), ("cuda GPU-1", "not-observed"), (None, "not-exercised")]
)
def test_loads_onto_the_device_of_another_rank(
    loaded: str | None, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = finding_of("DDP603", tmp_path, monkeypatch)
    devices = [loaded] if loaded else []
    run = run_of([], [event(PLACE, 3, devices=["cuda GPU-1"]), event(READ, finding.span.line, path="last.pt", devices=devices)])
    assert RULES["DDP603"].verify(finding, run) == verdict
    elsewhere = run_of([event(READ, finding.span.line, path="last.pt", devices=["cuda GPU-0"])])  # no model is known of
    assert RULES["DDP603"].verify(finding, elsewhere) == "not-exercised"


CLIP_LINE = 20
BACK, STEPPED, OUT = event(BACKWARD, 18), event(STEP, 25), event(UNSCALED, 24, scale=4.0)


def clip(cut: bool | None = True, line: int = CLIP_LINE) -> Event:
    return event(CLIP, line, cut=cut)


@pytest.mark.parametrize(
    ("rank", "verdict"),
    [
        ([BACK, clip(), BACK, clip(), STEPPED], "confirmed"),  # every micro-batch
        ([BACK, clip(None), OUT, STEPPED], "confirmed"),  # the scale is still in the gradients
        ([BACK, clip(), STEPPED] * 3, "not-observed"),
        ([BACK, OUT, clip(), STEPPED], "not-observed"),
        ([BACK, OUT, clip(), BACK, OUT, clip(), BACK, OUT, clip()], "not-observed"),  # steps that the scaler left out
        ([BACK, clip(), STEPPED, BACK, clip(), BACK, clip(), STEPPED], "not-observed"),  # a step that was left out
        ([BACK, clip(False), BACK, clip(False), STEPPED], "not-observed"),  # never above the limit
        ([BACK, clip(), event(UNSCALED, 24, scale=1.0), STEPPED], "not-observed"),
        ([BACK, clip(line=30), BACK, clip(line=30), STEPPED], "not-exercised"),
    ],
)
def test_gradients_that_are_clipped_too_early(
    rank: list[Event], verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = finding_of("DDP804", tmp_path, monkeypatch)
    finding.span = replace(finding.span, line=CLIP_LINE, end_line=CLIP_LINE)
    assert RULES["DDP804"].verify(finding, run_of(rank, rank)) == verdict


def test_a_buffer_that_is_used_before_its_collective_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of("DDP208", tmp_path, monkeypatch)
    (call,) = [one.line for one in finding.related if one.role == "collective"]
    use = finding.span.line

    def started(line: int = call, done: float | None = 9.0) -> Event:
        return replace(event(COLLECTIVE, line, **{"async": True, "done": done}), time=1.0)

    def verdict(*events: Event) -> str:
        return RULES["DDP208"].verify(finding, run_of([replace(one, time=one.time or 5.0) for one in events]))

    waited = event(UNFINISHED, use + 1)
    assert verdict(started(), waited) == verdict(started(2, done=3.0), started(), waited) == "confirmed"
    assert verdict(started()) == verdict(started(done=3.0), waited) == "not-observed"
    assert verdict(started(2, done=None), started(), waited) == "not-exercised"  # it may wait for the other
    assert verdict(started(), event(UNFINISHED, use - 1)) == "not-exercised"
    assert verdict(waited) == "not-exercised"
    elsewhere = Site("train.py", use + 1, "collect")
    assert verdict(started(), replace(waited, site=elsewhere)) == "not-exercised"
