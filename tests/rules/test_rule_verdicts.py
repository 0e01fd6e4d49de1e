"""What a recorded run says of the findings of the synchronisation and collective rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddp_audit.compare.run import EXITED, KILLED, RAISED, WAITING, RankRun, RecordedRun
from ddp_audit.events import BACKWARD, COLLECTIVE, EXCEPTION, FORWARD, STEP, Event, Site
from ddp_audit.findings import Finding
from ddp_audit.program import lower
from ddp_audit.rule import Context, load_rules
from ddp_audit.source.project import Project

RULES = {rule.code: rule for rule in load_rules()}


@pytest.fixture
def finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Finding:
    """The finding of a rule in its own bad example."""
    monkeypatch.chdir(tmp_path)
    rule = RULES[request.param]
    Path("train.py").write_text(rule.bad)
    project = Project(["train.py"])
    (found,) = rule.check(Context(lower(project, project.files[0])))
    return found


def line_of(code: str, text: str) -> int:
    """The line of the bad example that holds a text."""
    return next(number for number, line in enumerate(RULES[code].bad.splitlines(), 1) if text in line)


def event(kind: str, line: int, **detail: object) -> Event:
    """An event of a kind at a line of train.py."""
    site = Site("/home/user/project/train.py", line)
    return Event(kind, "all_reduce" if kind == COLLECTIVE else "", site=site, stack=(site,), detail=detail)


def run_of(*ranks: list[Event], complete: bool = True) -> RecordedRun:
    """A run of these ranks."""
    return RecordedRun(len(ranks), {n: RankRun(n, events, EXITED) for n, events in enumerate(ranks)}, complete=complete)


@pytest.mark.parametrize(
    "finding", sorted(RULES.keys() & {"DDP101", "DDP105", "DDP112", "DDP113", "DDP201", "DDP202", "DDP203"}), indirect=True
)
def test_a_run_that_never_came_here_covers_nothing(finding: Finding) -> None:
    run = run_of([event(FORWARD, 900)], [event(FORWARD, 900)])
    assert RULES[finding.code].verify(finding, run) == "not-exercised"


@pytest.mark.parametrize("finding", ["DDP101"], indirect=True)
@pytest.mark.parametrize(("buckets", "verdict"), [(0, "confirmed"), (1, "not-observed")])
def test_backward_without_buckets(finding: Finding, buckets: int, verdict: str) -> None:
    passes = [event(BACKWARD, line_of("DDP101", "loss.backward()"), buckets=buckets)]
    assert RULES["DDP101"].verify(finding, run_of(passes, passes)) == verdict


@pytest.mark.parametrize("finding", ["DDP113"], indirect=True)
@pytest.mark.parametrize(("buckets", "verdict"), [(2, "confirmed"), (0, "not-observed")])
def test_backward_with_buckets(finding: Finding, buckets: int, verdict: str) -> None:
    passes = [event(BACKWARD, line_of("DDP113", "loss.backward()"), buckets=buckets)]
    assert RULES["DDP113"].verify(finding, run_of(passes, passes)) == verdict


@pytest.mark.parametrize("finding", ["DDP105", "DDP112"], indirect=True)
@pytest.mark.parametrize(("unreduced", "verdict"), [(True, "confirmed"), (False, "not-observed")])
def test_step_with_local_gradients(finding: Finding, unreduced: bool, verdict: str) -> None:
    code = finding.code
    events = [
        event(FORWARD, line_of(code, "model(x)"), sync=True),
        event(STEP, line_of(code, "optimizer.step()"), unreduced=unreduced),
    ]
    assert RULES[code].verify(finding, run_of(events, events)) == verdict


@pytest.mark.parametrize("finding", ["DDP115"], indirect=True)
def test_attribute_error(finding: Finding) -> None:
    text = "'DistributedDataParallel' object has no attribute 'scale'"
    run = run_of([event(EXCEPTION, finding.span.line, type="AttributeError", text=text)], [])
    assert RULES["DDP115"].verify(finding, run) == "confirmed"


@pytest.mark.parametrize("finding", ["DDP201", "DDP202"], indirect=True)
def test_collective_of_one_rank(finding: Finding) -> None:
    here = event(COLLECTIVE, finding.span.line)
    rule = RULES[finding.code]
    assert rule.verify(finding, run_of([here], [])) == "confirmed"
    assert rule.verify(finding, run_of([here], [here])) == "not-observed"


@pytest.mark.parametrize("finding", ["DDP201", "DDP202"], indirect=True)
def test_collective_of_one_rank_that_meets_another_of_another_size(finding: Finding) -> None:
    """gloo aborts the one, and the other raises as its peer is gone: nobody waits, and nobody left in order."""
    here, there = event(COLLECTIVE, finding.span.line), replace(event(COLLECTIVE, 500), numel=49)
    gone = event(EXCEPTION, 500, type="RuntimeError", text="Connection reset by peer")
    for numel, verdict in ((1, "confirmed"), (49, "not-observed")):  # equal ones pair, from different places
        run = run_of([replace(here, numel=numel)], [there, gone])
        run.ranks[0].state, run.ranks[1].state = KILLED, RAISED
        assert RULES[finding.code].verify(finding, run) == verdict


@pytest.mark.parametrize("finding", ["DDP203"], indirect=True)
def test_ranks_with_unequal_counts(finding: Finding) -> None:
    forward = event(FORWARD, line_of("DDP203", "model(x)"))
    rule = RULES["DDP203"]
    assert rule.verify(finding, run_of([forward] * 8, [forward] * 3)) == "confirmed"
    assert rule.verify(finding, run_of([forward] * 3, [forward] * 3)) == "not-observed"


@pytest.mark.parametrize("finding", ["DDP203"], indirect=True)
def test_one_more_in_a_run_cut_off_is_no_proof(finding: Finding) -> None:
    forward = event(FORWARD, line_of("DDP203", "model(x)"))
    run = run_of([forward] * 4, [forward] * 3, complete=False)
    for rank in run.ranks.values():
        rank.state = WAITING
    assert RULES["DDP203"].verify(finding, run) == "not-observed"
    run.ranks[0].waiting, run.ranks[1].waiting = event(COLLECTIVE, 20), event(COLLECTIVE, 25)
    assert RULES["DDP203"].verify(finding, run) == "confirmed"
