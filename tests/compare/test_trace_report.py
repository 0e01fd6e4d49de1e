"""The report for people and the documented JSON of a comparison."""

from __future__ import annotations

import io
import json
from pathlib import Path

from compare_events import all_reduce, barrier, broadcast, exception, forward, rank_run, recorded, site

from ddp_audit.compare.run import EXITED, KILLED, RAISED, RUNNING, WAITING, RankRun, RecordedRun
from ddp_audit.compare.verdict import Comparison, compare_run
from ddp_audit.events import DDP_BUCKET, DDP_BUFFERS, STEP, Event
from ddp_audit.findings import Finding, Span
from ddp_audit.report import trace_json, trace_text

EVALUATION = broadcast(0, 64, origin=DDP_BUFFERS, index=153, stack=(site(3, "estimate_loss"), site(9, "main")), time=1000.0)
BUCKET = all_reduce(7, 7_085_312, origin=DDP_BUCKET, index=153)


def parted_run(ranks: int = 2) -> RecordedRun:
    before = [all_reduce(5, 1, index=n) for n in range(149, 153)]
    runs = [rank_run(0, [*before, forward(False), EVALUATION], WAITING, waiting=EVALUATION)]
    runs += [rank_run(r, [*before, BUCKET], WAITING, waiting=BUCKET) for r in range(1, ranks)]
    return recorded(*runs, complete=False)


def sources(folder: Path) -> Path:
    lines = [f"line {n}" for n in range(1, 12)]
    lines[2] = "        logits, loss = model(X, Y)"
    (folder / "train.py").write_text("\n".join(lines))
    return folder


def test_the_json_is_the_documented_one() -> None:
    found = json.loads(trace_json.render(compare_run(parted_run())))
    assert list(found) == ["version", "world_size", "complete", "verdict", "divergences", "silent", "ranks", "waiting"]
    assert (found["version"], found["world_size"], found["complete"], found["verdict"]) == (2, 2, False, "diverged")
    (divergence,) = found["divergences"]
    assert {k: divergence[k] for k in ("group", "index", "kind", "odd")} == {
        "group": "default",
        "index": 153,
        "kind": "operation",
        "odd": [],
    }
    assert divergence["ranks"]["0"] == {
        "op": "broadcast",
        "origin": "ddp-buffers",
        "numel": 64,
        "dtype": "float32",
        "site": "train.py:3",
        "stack": ["train.py:3 estimate_loss", "train.py:9 main"],
        "root": 0,
    }
    assert divergence["ranks"]["1"]["reduce_op"] == "sum"
    assert divergence["explanation"]
    assert found["ranks"]["0"]["state"] == "waiting" and found["ranks"]["0"]["events"] == 6
    assert "code" not in found["ranks"]["0"]


def test_the_json_of_missing_ranks_silent_faults_and_notices() -> None:
    step = Event(STEP, site=site(310), detail={"unreduced": True})
    buffers = broadcast(5, origin=DDP_BUFFERS)
    run = recorded(rank_run(0, [forward(False), buffers, step, barrier()], WAITING), rank_run(1, [forward(True), buffers, step]))
    found = json.loads(trace_json.render(compare_run(run)))
    assert [(d["kind"], d["ranks"]["1"] is None) for d in found["divergences"]] == [("missing-rank", True), ("crossed", False)]
    assert found["divergences"][1]["count"] == 1
    assert found["silent"] == [
        {
            "kind": "gradients-not-reduced",
            "ranks": [0, 1],
            "site": "train.py:310",
            "explanation": found["silent"][0]["explanation"],
        }
    ]
    assert found["ranks"]["1"]["code"] == 0 and found["ranks"]["1"]["state"] == "exited"


def test_both_sides_stand_side_by_side_in_80_columns(tmp_path: Path) -> None:
    comparison = compare_run(parted_run(), root=sources(tmp_path))
    text = trace_text.render(comparison, root=tmp_path)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "The 2 ranks diverged."
    head = next(n for n, line in enumerate(lines) if line.split() == ["rank", "0", "rank", "1"])
    row = lines[head + 1]
    assert row.startswith("> 153 ") and "DDP buffer broadcast of 64 float32" in row and "DDP bucket all-reduce" in row
    below = "\n".join(lines[head:])
    assert "train.py:3 in estimate_loss" in below and "logits, loss = model(X, Y)" in below
    assert "train.py:9 in main" in below and "train.py:7 in main" in below
    assert [line.split()[:2] for line in lines[head - 3 : head]] == [["=", "150"], ["=", "151"], ["=", "152"]]
    assert "Rank 0: waits in broadcast of 64 float32 (DDP buffer broadcast) at train.py:3." in lines[-2] + lines[-1] + text


def test_without_sources_the_report_still_stands(tmp_path: Path) -> None:
    text = trace_text.render(compare_run(parted_run()), root=tmp_path / "nowhere")
    assert "train.py:3 in estimate_loss" in text


def test_ranks_that_agree_share_a_column() -> None:
    text = trace_text.render(compare_run(parted_run(16)))
    assert "rank 0 (odd)" in text and "ranks 1-15" in text
    assert text.count("DDP bucket all-reduce of 7,085,312 float32 in") <= 2
    assert "Ranks 1-15: waits" not in text or max(map(len, text.splitlines())) <= 80


def test_many_different_places_are_stacked() -> None:
    run = recorded(*(rank_run(r, [all_reduce(r + 1, r + 1)], WAITING) for r in range(5)), complete=False)
    text = trace_text.render(compare_run(run))
    assert max(map(len, text.splitlines())) <= 80
    for rank in range(5):
        assert f"all_reduce of {rank + 1} float32 (sum)" in text


def test_long_paths_and_long_sources_fit(tmp_path: Path) -> None:
    path = "a/very/long/path/" * 8 + "train_something_special.py"
    long = all_reduce(0, stack=(site(1, "a_function_with_quite_a_long_name_of_its_own", path),))
    text = trace_text.render(compare_run(recorded(rank_run(0, [long]), rank_run(1, [barrier()]))), root=tmp_path)
    before_explanation = text.split("\n\n")[1].splitlines()
    assert any("../train_something" in line for line in before_explanation), "the file's own name is kept"
    assert max(map(len, before_explanation)) <= 80


def test_an_absent_rank_is_shown_with_its_end() -> None:
    gone = rank_run(1, [all_reduce(1), exception("ValueError", "bad batch")], RAISED, 1, last="ValueError: bad batch")
    text = trace_text.render(compare_run(recorded(rank_run(0, [all_reduce(1), barrier(2)], WAITING), gone)))
    assert "nothing: ended with\n" in text
    assert "ValueError: bad batch" in text and "a rank is missing" in text


def test_a_rank_that_failed_is_the_headline() -> None:
    raised = exception("RuntimeError", "boom", site(8))
    gone = rank_run(1, [all_reduce(1), raised], RAISED, 1)
    waits = rank_run(0, [all_reduce(1), barrier(2)], WAITING, waiting=barrier(2))
    other = rank_run(2, [all_reduce(1), barrier(2), exception("RuntimeError", "Connection closed by peer")], RAISED, 1)

    def headline(*ranks: RankRun) -> str:
        return trace_text.headline(compare_run(recorded(*ranks))).text

    assert headline(waits, gone) == "Rank 1 failed: RuntimeError: boom (train.py:8); rank 0 was left waiting."
    assert headline(waits, gone, other).endswith("; ranks 0 and 2 were left waiting.")
    assert headline(waits, rank_run(1, [all_reduce(1)], KILLED, -11)) == "Rank 1 was killed by signal 11; rank 0 was left waiting."
    assert headline(waits, rank_run(1, [all_reduce(1)], EXITED, 3)) == "Rank 1 exited with code 3; rank 0 was left waiting."
    assert headline(waits, rank_run(1, [all_reduce(1)], EXITED, 0)) == "The 2 ranks diverged."  # it left in order
    assert headline(waits, rank_run(1, [broadcast(1), raised], RAISED, 1)) == "The 2 ranks diverged."  # a mismatch comes first
    assert headline(rank_run(0, [all_reduce(1), raised], RAISED, 1), gone) == (
        "The 2 ranks agree in what is recorded; ranks 0 and 1 failed: RuntimeError: boom (train.py:8)."
    )


def test_messages_are_counted_apart_and_a_run_that_lives_goes_on() -> None:
    def message(op: str, peer: int) -> Event:
        detail = {"peer": peer, "tag": 0, "async": False, "done": 1.0, "thread": 0}
        return Event("collective", op, numel=4, dtype="float32", site=site(9), stack=(site(9),), detail=detail)

    ranks = rank_run(0, [all_reduce(1), message("send", 1)]), rank_run(1, [all_reduce(1), message("recv", 0)])
    assert trace_text.headline(compare_run(recorded(*ranks))).text == "The 2 ranks agree in 1 collective and 1 message."
    lives = compare_run(recorded(rank_run(0, [all_reduce(1)], RUNNING), rank_run(1, [all_reduce(1)], RUNNING)))
    assert trace_text.headline(lives).text == "The 2 ranks agree in what is recorded; the run goes on."


def test_agreement_silent_faults_notices_and_findings() -> None:
    step = Event(STEP, site=site(310), detail={"unreduced": True})
    buffers = broadcast(5, origin=DDP_BUFFERS)
    run = recorded(rank_run(0, [forward(False), buffers, step]), rank_run(1, [forward(True), buffers, step]))
    findings = [
        Finding(
            "DDP105", "flag-after-forward", "error", "likely", Span("train.py", 30, 1, 30, 9), "The flag comes late.", verdict=v
        )
        for v in ("confirmed", "not-observed", "not-exercised", "not-covered", None)
    ]
    text = trace_text.render(compare_run(run), findings=findings)
    assert text.startswith("The 2 ranks agree in 1 collective. 1 silent fault all the same.")
    assert "gradients-not-reduced  ranks 0 and 1  train.py:310" in text
    assert "Crossed:" in text and "without gradients" in text
    for title in (
        "CONFIRMED: the run shows it",
        "NOT OBSERVED: ",
        "NOT EXERCISED: nothing in this run could",
        "NOT COVERED: the run ended",
    ):
        assert f"  {title}" in text
    assert text.count("train.py:30 DDP105 flag-after-forward") == 4
    assert "Where the ranks stand" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_headline_of_a_single_rank() -> None:
    def headline(rank: RankRun) -> str:
        return trace_text.headline(compare_run(recorded(rank))).text

    assert headline(rank_run(0, [all_reduce()])) == "The only rank ran 1 collective; nothing can be compared with it."
    assert headline(rank_run(0, [all_reduce()], KILLED)) == "The run did not end in order."


def test_an_unfinished_run_says_where_the_ranks_are() -> None:
    text = trace_text.render(compare_run(recorded(rank_run(0, [all_reduce()], KILLED), rank_run(1, [all_reduce()], KILLED))))
    assert text.startswith("The 2 ranks agree in what is recorded; the run did not end in order.")
    assert "Ranks 0 and 1: each was killed" in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(comparison: Comparison, stream: io.StringIO) -> str:
    trace_text.show(comparison, stream)
    return stream.getvalue()


def test_plain_when_piped_and_coloured_on_a_terminal(monkeypatch: object) -> None:
    comparison = compare_run(parted_run())
    plain = shown(comparison, io.StringIO())
    assert plain == trace_text.render(comparison)
    assert "\x1b[" not in plain
    monkeypatch.setenv("TERM", "xterm-256color")  # type: ignore[attr-defined]
    monkeypatch.delenv("NO_COLOR", raising=False)  # type: ignore[attr-defined]
    coloured = shown(comparison, _Terminal())
    assert "\x1b[" in coloured
    assert "diverged" in coloured


def test_a_divergence_that_was_told_while_the_ranks_ran_is_not_repeated(tmp_path: Path) -> None:
    run = parted_run()
    comparison = compare_run(run)
    whole = trace_text.render(comparison, root=tmp_path)
    told = {trace_text.divergence_text(divergence, comparison.ranks, root=tmp_path) for divergence in comparison.parted}
    short = trace_text.render(comparison, root=tmp_path, reported=told)
    first = comparison.parted[0]
    assert f"{trace_text.title(first)} (shown above)" in short.splitlines()
    assert "(shown above)" not in whole
    assert len(short.splitlines()) < len(whole.splitlines()) - 5
    assert "Where the ranks stand" in short


def test_a_divergence_that_has_changed_since_is_shown_again(tmp_path: Path) -> None:
    early = compare_run(recorded(rank_run(0, [all_reduce(1), barrier(2)], WAITING), rank_run(1, [all_reduce(1)], EXITED)))
    late = compare_run(recorded(rank_run(0, [all_reduce(1), barrier(2)], WAITING), rank_run(1, [all_reduce(1)], KILLED)))
    told = {trace_text.divergence_text(divergence, early.ranks, root=tmp_path) for divergence in early.parted}
    assert "(shown above)" not in trace_text.render(late, root=tmp_path, reported=told)
