"""What a recorded run says of the findings of DDP102 to DDP111, each in the bad example of its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, rules

from ddp_audit.compare.run import EXITED, WAITING, RankRun, RecordedRun
from ddp_audit.events import (
    BACKWARD,
    COLLECTIVE,
    DDP_BUCKET,
    EXCEPTION,
    FACTOR,
    FORWARD,
    PARAMETERS,
    STEP,
    USER,
    WRAP,
    Event,
    Site,
)
from ddp_audit.findings import Finding

GAVE_UP = "Expected to have finished reduction in the prior iteration before starting a new one."
TWICE = "Expected to mark a variable ready only once."


@pytest.fixture
def finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Finding:
    """The finding of a rule in its own bad example."""
    monkeypatch.chdir(tmp_path)
    rule = rules()[request.param]
    (found,) = rule.check(audited(tmp_path, rule.bad))
    return found


def event(kind: str, line: int, origin: str = USER, **detail: object) -> Event:
    """An event of a kind at a line of train.py."""
    site = Site("/home/user/project/train.py", line)
    op = "all_reduce" if kind == COLLECTIVE else ""
    return Event(kind, op, origin=origin, site=site, stack=(site,), detail=detail)


def run_of(*ranks: list[Event]) -> RecordedRun:
    """A run of these ranks, ended in order."""
    return RecordedRun(len(ranks), {n: RankRun(n, events, EXITED) for n, events in enumerate(ranks)}, complete=True)


def verdict(finding: Finding, run: RecordedRun) -> str:
    """What the rule of a finding says of a run."""
    return rules()[finding.code].verify(finding, run)


def wrap_line(finding: Finding) -> int:
    """The line of the wrap that a finding names."""
    return next(r.line for r in finding.related if r.role == "wrap")


ALL = ("DDP102", "DDP103", "DDP104", "DDP106", "DDP107", "DDP108", "DDP109", "DDP110", "DDP111")


@pytest.mark.parametrize("finding", ALL, indirect=True)
def test_a_run_of_something_else_covers_nothing(finding: Finding) -> None:
    assert verdict(finding, run_of([event(WRAP, 900)], [event(WRAP, 900)])) == "not-exercised"


@pytest.mark.parametrize("finding", ["DDP106"], indirect=True)
@pytest.mark.parametrize(("buckets", "said"), [(0, "confirmed"), (1, "not-observed")])
def test_second_backward_without_buckets(finding: Finding, buckets: int, said: str) -> None:
    passes = [event(BACKWARD, finding.span.line - 1, buckets=1), event(BACKWARD, finding.span.line, buckets=buckets)]
    assert verdict(finding, run_of(passes, passes)) == said


@pytest.mark.parametrize("finding", ["DDP103", "DDP104", "DDP107", "DDP111"], indirect=True)
def test_replicas_that_differ(finding: Finding) -> None:
    def rank(value: str, unreduced: bool) -> list[Event]:
        return [
            event(WRAP, wrap_line(finding), model="ddp0"),
            event(STEP, 900, unreduced=unreduced),
            event(PARAMETERS, 900, model="ddp0", hash=value, step=1),
        ]

    assert verdict(finding, run_of(rank("a", False), rank("a", False))) == "not-observed"
    assert verdict(finding, run_of(rank("a", False), rank("b", False))) == "confirmed"
    assert verdict(finding, run_of(rank("a", True), rank("a", True))) == "confirmed"


@pytest.mark.parametrize("finding", ["DDP103", "DDP104", "DDP107", "DDP108", "DDP109"], indirect=True)
@pytest.mark.parametrize(("text", "said"), [(GAVE_UP, "confirmed"), (TWICE, "confirmed"), ("CUDA out of memory", "not-observed")])
def test_error_of_the_reducer(finding: Finding, text: str, said: str) -> None:
    events = [
        event(WRAP, wrap_line(finding), model="ddp0"),
        event(FORWARD, 900, model="ddp0"),
        event(STEP, 900),
        event(EXCEPTION, 900, type="RuntimeError", text=text),
    ]
    assert verdict(finding, run_of(events, events)) == said


@pytest.mark.parametrize("finding", ["DDP109"], indirect=True)
def test_a_rank_that_waits_in_a_bucket(finding: Finding) -> None:
    run = run_of([event(FORWARD, 900)], [event(FORWARD, 900)])
    run.ranks[0].state, run.ranks[0].waiting = WAITING, event(COLLECTIVE, 901, origin=DDP_BUCKET)
    assert verdict(finding, run) == "confirmed"


def test_a_sum_on_top_of_ddp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rule = rules()["DDP110"]
    text = rule.bad.replace("net = torch.nn.Linear(4, 1)", "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))")
    (finding,) = rule.check(audited(tmp_path, text))
    here = event(COLLECTIVE, finding.span.line)
    both = [event(COLLECTIVE, 900, origin=DDP_BUCKET), here]
    assert rule.verify(finding, run_of(both, both)) == "not-exercised"  # it may carry other parameters
    right, doubled = ([*both, event(FACTOR, 1, mean=True, factors=[[]], passes=1, replicas=2, ratio=r)] for r in (1.0, 2.0))
    assert rule.verify(finding, run_of(right, right)) == "not-observed"
    assert rule.verify(finding, run_of(doubled, doubled)) == "confirmed"
