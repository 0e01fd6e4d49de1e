"""Exports of a comparison: Perfetto's JSON and a Parquet table."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
from flight_dumps import Recorder, steps, write
from generated_traces import generate

from ddp_audit.cli import main
from ddp_audit.cli.recorded import read_compared
from ddp_audit.report import perfetto
from ddp_audit.report.selection import select

RANKS, EVENTS, ODD = 4, 300, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trace")
    generate(made, RANKS, EVENTS, "size", ODD)
    return made


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Three ranks of which the last waits elsewhere."""
    made = [Recorder(rank, 3) for rank in range(3)]
    for one in made:
        steps(one, 4)
        one.add("all_gather" if one.rank == 2 else "all_reduce", [4], line=30, done=False)
    return write(tmp_path / "dumps", made)


def exported(folder: Path, path: Path) -> list[dict[str, Any]]:
    assert main(["diff", str(folder), "--export", "perfetto", str(path)]) == 1
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_perfetto_has_a_process_a_rank_and_a_thread_a_group(folder: Path, tmp_path: Path) -> None:
    events = exported(folder, tmp_path / "p.json")
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {rank + 1: f"rank {rank} (exited)" for rank in range(RANKS)}
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sorted(threads.values()) == ["steps"] * RANKS + ["the default group"] * RANKS
    run, _ = read_compared(str(folder))
    count = sum(event.kind == "collective" for rank in run.ranks.values() for event in rank.events)
    assert len([event for event in events if event["ph"] == "X" and threads[event["pid"], event["tid"]] != "steps"]) == count


def test_arrows_lead_from_the_first_to_the_last_side_of_a_collective(folder: Path, tmp_path: Path) -> None:
    events = exported(folder, tmp_path / "p.json")
    bars: dict[tuple[int, int, float], set[int]] = {}
    for event in events:
        if event["ph"] == "X" and "index" in event.get("args", {}):
            bars.setdefault((event["pid"], event["tid"], event["ts"]), set()).add(event["args"]["index"])
    arrows: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] in "stf":
            arrows.setdefault(event["id"], []).append(event)
    assert len(arrows) == len(set[int]().union(*bars.values()))
    for sides in arrows.values():
        assert [side["ph"] for side in sides] == ["s", *"t" * (len(sides) - 2), "f"]
        # They begin with bars of one collective.
        assert set.intersection(*(bars[side["pid"], side["tid"], side["ts"]] for side in sides))
        assert [side["ts"] for side in sides] == sorted(side["ts"] for side in sides)
        assert len({side["pid"] for side in sides}) == len(sides) > 1


def test_perfetto_may_be_compressed(folder: Path, tmp_path: Path) -> None:
    exported(folder, tmp_path / "p.json")
    assert main(["diff", str(folder), "--export", "perfetto", str(tmp_path / "p.json.gz")]) == 1
    assert gzip.decompress((tmp_path / "p.json.gz").read_bytes()) == (tmp_path / "p.json").read_bytes()


def test_events_have_what_perfetto_needs(dumps: Path, tmp_path: Path) -> None:
    """Its import keeps process 0 and thread 0 for the idle task, and merges threads of one number (google/perfetto 394, 560)."""
    events = exported(dumps, tmp_path / "p.json")
    owners: dict[int, set[int]] = {}
    for event in events:
        assert isinstance(event["name"], str) and event["ph"] in tuple("MXistf") and event["pid"] > 0 and event["tid"] > 0
        owners.setdefault(event["tid"], set()).add(event["pid"])
        if event["ph"] == "M":
            assert list(event["args"]) == ["sort_index" if event["name"] == "process_sort_index" else "name"]
        elif event["ph"] in "stf":
            assert event["ts"] >= 0 and event["cat"] and event["id"] > 0
        else:
            assert event["ts"] >= 0 and event["cat"] and isinstance(event["args"], dict)
            assert event["dur"] >= 0 if event["ph"] == "X" else event["s"] in ("t", "p", "g")
    assert all(len(pids) == 1 for pids in owners.values())
    assert all(owners[tid] == {tid} for tid in owners if {tid} in owners.values())


def test_bars_of_a_thread_do_not_overlap(folder: Path, tmp_path: Path) -> None:
    """Perfetto puts overlapping bars of one thread into a stack, as if one had called the other."""
    ends: dict[tuple[int, int], float] = {}
    for event in exported(folder, tmp_path / "p.json"):
        if event["ph"] == "X" and event["cat"] != "step":
            key = (event["pid"], event["tid"])
            assert event["ts"] >= ends.get(key, 0.0) - 0.01
            ends[key] = event["ts"] + event["dur"]


def test_perfetto_marks_the_divergence(dumps: Path, tmp_path: Path) -> None:
    events = exported(dumps, tmp_path / "p.json")
    (line,) = [event for event in events if event.get("s") == "g"]
    assert line["name"] == "divergence (operation) in collective 9 of the default group"
    marked = [event for event in events if event.get("cname") == "terrible"]
    assert [(event["pid"], event["args"]["op"], event["args"]["returned"]) for event in marked] == [
        (1, "all_reduce", False), (2, "all_reduce", False), (3, "all_gather", False),
    ]  # fmt: skip
    odd = {event["pid"]: event["args"]["odd"] for event in events if event["name"].startswith("parts here")}
    assert odd == {1: False, 2: False, 3: True}


def test_large_runs_are_exported_around_the_divergence(folder: Path) -> None:
    run, comparison = read_compared(str(folder))
    selection = select(run, comparison, 200)
    assert not selection.is_whole and "around the first divergence" in selection.note()
    for rank in range(RANKS):
        found = [event for event in selection.events(rank) if selection.is_apart(event)]
        assert len(found) == 1 and len(selection.events(rank)) <= 60
    whole = select(run, comparison, perfetto.MOST)
    assert whole.is_whole and list(whole.events(0)) == list(run.ranks[0].events)


@pytest.mark.parametrize("words", [("nothing", "x"), ("perfetto", "no/such/folder/x"), ("parquet", "x.parquet")])
def test_exports_that_cannot_be(
    folder: Path, words: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] == "parquet":
        monkeypatch.setitem(sys.modules, "pyarrow", None)  # as where it is not installed
    assert main(["diff", str(folder), "--export", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    if words[0] == "parquet":
        assert "ddp-audit[parquet]" in said


def test_parquet(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    assert main(["diff", str(folder), "--export", "parquet", str(path)]) == 1
    rows = parquet.read_table(path).to_pylist()
    run, comparison = read_compared(str(folder))
    assert len(rows) == sum(len(rank.events) for rank in run.ranks.values())
    took = [
        row["done"] - row["time"]
        for row in rows
        if (row["kind"], row["origin"], row["site"]) == ("collective", "user", "train.py:240")
    ]
    assert len(took) == RANKS and min(took) > 0  # what the guide's query adds up
    apart = [row for row in rows if row["apart"]]
    assert [(row["rank"], row["numel"]) for row in apart] == [(0, 1), (1, 1), (2, 2), (3, 1)]
    assert {row["index"] for row in apart} == {comparison.parted[0].index}
    assert apart[0]["stack"] == ["train.py:240 train", "train.py:300 <module>"]
