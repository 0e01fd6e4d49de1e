"""Slow or stuck: clocks, waits, phases and the verdict on a slow rank, on generated steps."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_steps import BUSY, LINES, QUIET, SHARES, STEP, Noise, steps_of

from ddp_audit import events
from ddp_audit.cli import exports
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.verdict import compare_run
from ddp_audit.compare.waiting import Waiting, waiting
from ddp_audit.compare.waiting.clocks import clock_offsets
from ddp_audit.compare.waiting.measure import LEAST_STEPS
from ddp_audit.compare.waiting.timeline import marks_of
from ddp_audit.events import Event
from ddp_audit.report import trace_json, trace_text

SCHEMA = Path(trace_json.__file__).parent / "schemas" / "diff.schema.json"
EXACT = Noise(own=0.0, load=0.0, shared=0.0, pauses=0.0)


def only(run: RecordedRun) -> Waiting:
    (found,) = waiting(run)
    return found


@pytest.mark.parametrize("phase", SHARES)
@pytest.mark.parametrize(("ranks", "slow"), [(2, 1), (2, 0), (5, 3)])
def test_a_slow_rank_is_named_with_its_phase_and_line(ranks: int, slow: int, phase: str) -> None:
    found = only(steps_of(ranks, 51, 7, slow=slow, phase=phase, share=0.1, metric=True))
    (straggler,) = found.stragglers
    assert (straggler.rank, straggler.phase, straggler.phases) == (slow, phase, (phase,))
    assert straggler.site is not None and straggler.site.line == LINES[phase]
    assert 0.07 < straggler.share < 0.13 and 0.07 < straggler.seconds / STEP < 0.13
    assert found.steps == 50
    assert found.ranks[slow].held_up > max(one.held_up for rank, one in found.ranks.items() if rank != slow)
    assert all(found.share(rank) > found.share(slow) for rank in range(ranks) if rank != slow)


@pytest.mark.parametrize("ranks", [2, 3, 4, 16])
def test_even_ranks_get_no_verdict(ranks: int) -> None:
    for seed in range(12):
        for steps in (LEAST_STEPS + 1, 51):
            run = steps_of(ranks, steps, seed, buffers=seed % 2 == 0, metric=seed % 3 == 0, hosts=1 + seed % 2)
            assert only(run).stragglers == []


def test_what_slows_all_ranks_down_is_no_verdict() -> None:
    assert only(steps_of(4, 60, 3, noise=replace(QUIET, shared=0.5))).stragglers == []


def test_a_load_that_comes_and_goes_needs_more_than_a_few_steps() -> None:
    found = [only(steps_of(2, 400, seed, noise=BUSY)).stragglers for seed in range(6)]
    assert found == [[]] * 6


def test_one_long_pause_is_no_verdict() -> None:
    run = steps_of(2, 40, 5, noise=EXACT)
    later = [replace(event, time=event.time + (3.0 if at > 200 else 0.0)) for at, event in enumerate(run.ranks[1].events)]
    run.ranks[1].events = later
    assert only(run).stragglers == []


def test_a_rank_that_makes_up_for_it_holds_nobody_up() -> None:
    run = steps_of(2, 51, 3, slow=1, phase="forward", share=0.1, also=(0, "backward", 0.1))
    assert only(run).stragglers == []


def test_a_checkpoint_of_one_rank_alone_is_named_as_that() -> None:
    run = steps_of(3, 51, 2, slow=0, phase="checkpoint", share=0.1)
    for rank in (1, 2):
        run.ranks[rank].events = [event for event in run.ranks[rank].events if event.kind != events.SAVE]
    (straggler,) = only(run).stragglers
    assert (straggler.rank, straggler.phase, straggler.alone, straggler.occurs) == (0, "checkpoint", True, 10)
    text = trace_text.render(compare_run(run), width=200)
    assert "in saving a checkpoint at train.py:40, which only this rank does." in text


@pytest.mark.parametrize("hosts", [2, 4])
def test_clocks_of_hosts_are_brought_together(hosts: int) -> None:
    apart = only(steps_of(4, 51, 11, slow=2, phase="data", share=0.2, hosts=hosts, metric=True, buffers=True))
    assert [(one.rank, one.phase) for one in apart.stragglers] == [(2, "data")]
    assert all(apart.share(rank) > 0.1 for rank in (0, 1, 3)) and apart.share(2) < 0.1
    run = steps_of(4, 51, 11, hosts=hosts)
    marks = {rank: marks_of(one.events) for rank, one in run.ranks.items()}
    offsets = clock_offsets(marks, {rank: f"node{rank * hosts // 4}" for rank in range(4)})
    assert offsets is not None
    starts = {rank: one.events[1].time for rank, one in run.ranks.items()}
    for rank in range(1, 4):
        assert abs(starts[rank] - starts[0] - offsets[rank]) < 0.6  # ranks start up to half a second apart
        assert (abs(offsets[rank]) > 0.5) == (rank * hosts // 4 > 0)


def test_clocks_that_cannot_be_compared_give_no_waits() -> None:
    run = steps_of(2, 51, 3, hosts=2, metric=True)
    for one in run.ranks.values():
        one.events = [event for event in one.events if event.origin != events.DDP_BUCKET]
    assert waiting(run) == []


def test_waits_are_those_for_the_last_to_come() -> None:
    found = only(steps_of(2, 31, 1, slow=1, phase="forward", share=0.25, noise=EXACT))
    assert found.steps == 30
    assert found.ranks[0].waited == pytest.approx(30 * 0.25 * STEP, rel=0.05)
    assert found.ranks[1].waited < 0.01
    assert (found.ranks[0].last, found.ranks[1].last) == (0, 30)
    assert found.ranks[1].held_up == pytest.approx(found.ranks[0].waited)
    (place,) = found.places
    assert (place.site, place.rank, place.times) == (events.Site("train.py", LINES["backward"], "train"), 1, 30)


def test_a_receiver_waits_for_the_root_and_a_root_for_nobody() -> None:
    late_root = only(steps_of(3, 31, 1, slow=0, phase="data", share=0.25, noise=EXACT, buffers=True))
    assert late_root.ranks[1].waited == pytest.approx(30 * 0.25 * STEP, rel=0.05)
    assert [one.rank for one in late_root.stragglers] == [0]
    assert late_root.stragglers[0].phase == "data"  # and not a faster forward of the others


def test_few_steps_and_one_rank_say_nothing() -> None:
    assert waiting(steps_of(2, LEAST_STEPS, 1)) == []
    assert only(steps_of(2, LEAST_STEPS + 1, 1)).steps == LEAST_STEPS
    run = steps_of(2, 50, 1)
    del run.ranks[1]
    assert waiting(run) == []


def test_a_rank_that_stands_in_a_backward_pass_is_read_up_to_there() -> None:
    run = steps_of(2, 30, 1)
    own = list(run.ranks[1].events)
    last = max(at for at, event in enumerate(own) if event.kind == events.BACKWARD)
    own[last] = replace(own[last], detail={"done": None, "buckets": None})
    run.ranks[1].events = own[: last + 2]
    assert only(run).steps == 28


def test_older_records_without_ends_of_steps_still_give_waits() -> None:
    run = steps_of(2, 51, 4, slow=1, phase="backward", share=0.2)
    for one in run.ranks.values():
        one.events = [_without_done(event) for event in one.events]
    assert [(one.rank, one.phase) for one in only(run).stragglers] == [(1, "backward")]


def _without_done(event: Event) -> Event:
    if event.kind not in (events.STEP, events.SAVE, events.BATCH):
        return event
    return replace(event, detail={key: value for key, value in event.detail.items() if key not in ("done", "waited")})


def test_the_report_has_a_table_and_the_json_its_schema() -> None:
    comparison = compare_run(steps_of(2, 51, 7, slow=1, phase="optimizer", share=0.1))
    text = trace_text.render(comparison)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "Waiting by rank: 50 steps," in text
    assert "Slow: Rank 1 takes" in text and "in the optimizer at train.py:34." in " ".join(text.split())
    out = json.loads(trace_json.render(comparison))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(out)
    (group,) = out["waiting"]
    assert group["slow"][0]["rank"] == 1 and group["slow"][0]["site"] == "train.py:34"
    assert group["ranks"]["0"]["share"] > group["ranks"]["1"]["share"]
    assert comparison.exit_code == 0  # slow is not wrong


def test_the_page_has_the_table() -> None:
    run = steps_of(2, 51, 7, slow=1, phase="optimizer", share=0.1)
    text = exports.page(run, compare_run(run), None)
    assert "Waiting by rank: 50 steps," in text and "Slow: Rank 1 takes" in text
    short = steps_of(2, 5, 7)
    assert "Waiting by rank" not in exports.page(short, compare_run(short), None)


def test_many_ranks_are_shown_in_part() -> None:
    comparison = compare_run(steps_of(40, 21, 7, slow=17, phase="data", share=0.2))
    lines = trace_text.render(comparison).splitlines()
    assert sum(line.strip().endswith("ms") for line in lines) == 8
    assert any(line.split()[:1] == ["17"] for line in lines)
    assert "  and 32 more, which waited and were waited for less" in lines
