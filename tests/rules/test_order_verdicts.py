"""What a recorded run says of the findings of DDP204 to DDP212."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings, rules

from ddp_audit.compare.run import EXITED, RAISED, WAITING, RankRun, RecordedRun
from ddp_audit.events import COLLECTIVE, EXCEPTION, FORWARD, GROUP, SAVE, Event, Site
from ddp_audit.findings import Finding

CODES = ("DDP204", "DDP205", "DDP206", "DDP207", "DDP209", "DDP210", "DDP211", "DDP212")


@pytest.fixture
def finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Finding:
    """The finding of a rule in its own bad example."""
    monkeypatch.chdir(tmp_path)
    (found,) = findings(request.param, audited(tmp_path, rules()[request.param].bad))
    return found


def at(code: str, text: str) -> Site:
    """The place in the bad example that holds a text."""
    lines = rules()[code].bad.splitlines()
    return Site("/home/user/train.py", next(number for number, line in enumerate(lines, 1) if text in line))


def event(
    kind: str, site: Site, op: str = "all_reduce", numel: int | None = None, dtype: str | None = None, **detail: object
) -> Event:
    """An event at a place."""
    op = op if kind == COLLECTIVE else ""
    return Event(kind, op, numel=numel, dtype=dtype, site=site, stack=(site,), detail=detail)


def run_of(*ranks: list[Event], complete: bool = True, waiting: int | None = None, raised: int | None = None) -> RecordedRun:
    """A run of these ranks; one may wait in its last event, or have raised in it."""
    run = RecordedRun(len(ranks), {n: RankRun(n, events, EXITED) for n, events in enumerate(ranks)}, complete=complete)
    if waiting is not None:
        run.ranks[waiting].state, run.ranks[waiting].waiting = WAITING, run.ranks[waiting].events[-1]
    if raised is not None:
        run.ranks[raised].state = RAISED
    return run


def verdict(finding: Finding, run: RecordedRun) -> str:
    """The verdict of a run on a finding."""
    return rules()[finding.code].verify(finding, run)


@pytest.mark.parametrize("finding", CODES, indirect=True)
def test_a_run_that_never_came_here_covers_nothing(finding: Finding) -> None:
    elsewhere = event(FORWARD, Site("/home/user/train.py", 900))
    assert verdict(finding, run_of([elsewhere], [elsewhere])) == "not-exercised"


@pytest.mark.parametrize("finding", ["DDP204", "DDP205"], indirect=True)
def test_counts_of_what_is_done_together(finding: Finding) -> None:
    text = {"DDP204": "model(load(step, rank))", "DDP205": "model(x)"}[finding.code]
    forward = event(FORWARD, at(finding.code, text))
    assert verdict(finding, run_of([forward] * 4, [forward] * 3)) == "confirmed"
    assert verdict(finding, run_of([forward] * 4, [forward] * 4)) == "not-observed"


@pytest.mark.parametrize("finding", ["DDP204"], indirect=True)
def test_an_exception_here(finding: Finding) -> None:
    raised = event(EXCEPTION, at("DDP204", "except ValueError"))
    assert verdict(finding, run_of([], [raised], raised=1)) == "confirmed"


@pytest.mark.parametrize("finding", ["DDP206"], indirect=True)
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [(([1, 2], [2, 1]), "confirmed"), (([1, 2], [1, 2]), "not-observed"), (([1, 1], [1, 1]), "not-exercised")],
)
def test_orders_of_sizes(finding: Finding, sizes: tuple[list[int], list[int]], expected: str) -> None:
    ranks = [[event(COLLECTIVE, at("DDP206", "dist.all_reduce"), numel=n) for n in order] for order in sizes]
    assert verdict(finding, run_of(*ranks)) == expected


@pytest.mark.parametrize("finding", ["DDP207"], indirect=True)
@pytest.mark.parametrize(
    ("brought", "expected"),
    [(((8, "float32"), (2, "float32")), "confirmed"), (((2, "float32"), (2, "int64")), "confirmed"), (((2, "float32"),) * 2, "not-observed")],
)  # fmt: skip
def test_sizes_and_types(finding: Finding, brought: tuple[tuple[int, str], ...], expected: str) -> None:
    place = at("DDP207", "dist.all_gather(")
    assert verdict(finding, run_of(*([event(COLLECTIVE, place, "all_gather", n, dtype)] for n, dtype in brought))) == expected


@pytest.mark.parametrize("finding", ["DDP209"], indirect=True)
def test_groups_that_one_rank_made(finding: Finding) -> None:
    alone = event(GROUP, at("DDP209", "dist.new_group([0])"), action="new", ranks=[0])
    both = event(GROUP, at("DDP209", "dist.new_group([0, 1])"), action="new", ranks=[0, 1])
    assert verdict(finding, run_of([alone, both], [both])) == "confirmed"
    assert verdict(finding, run_of([alone, both], [alone, both])) == "not-observed"


@pytest.mark.parametrize("finding", ["DDP210"], indirect=True)
def test_a_message_in_which_a_rank_stands(finding: Finding) -> None:
    send = event(COLLECTIVE, at("DDP210", "dist.send"), "send")
    assert verdict(finding, run_of([send], [send], complete=False, waiting=0)) == "confirmed"
    assert verdict(finding, run_of([send], [send])) == "not-observed"


@pytest.mark.parametrize("finding", ["DDP211"], indirect=True)
def test_a_rank_that_never_came_to_the_others(finding: Finding) -> None:
    barrier = event(COLLECTIVE, at("DDP211", "dist.barrier"), "barrier")
    assert verdict(finding, run_of([], [barrier], complete=False, waiting=1)) == "confirmed"
    assert verdict(finding, run_of([barrier], [barrier])) == "not-observed"


@pytest.mark.parametrize("finding", ["DDP212"], indirect=True)
def test_ranks_in_the_guarded_block(finding: Finding) -> None:
    save = event(SAVE, at("DDP212", "torch.save"))
    assert verdict(finding, run_of([save], [save])) == "confirmed"
    assert verdict(finding, run_of([save], [])) == "not-observed"
