"""Dumps of PyTorch's Flight Recorder: what `diff` makes of them, and what torch's own analyzer makes of the same files."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flight_dumps import Recorder, steps, write

from ddp_audit.cli import main
from ddp_audit.compare.sequence import Divergence
from ddp_audit.compare.verdict import Comparison
from ddp_audit.events import DDP_BUCKET, DDP_BUFFERS
from ddp_audit.report.trace_json import as_object
from ddp_audit.report.trace_text import render
from ddp_audit.trace.dumps import find_dumps
from ddp_audit.trace.flight_recorder import compare_dumps, load_dumps, run_of
from ddp_audit.trace.store import TraceError


def compared(folder: Path) -> Comparison:
    dumps = load_dumps(folder)
    return compare_dumps(run_of(dumps), dumps)


def only(comparison: Comparison) -> Divergence:
    (found,) = comparison.parted
    return found


def recorders(world: int, backend: str = "nccl") -> list[Recorder]:
    made = [Recorder(rank, world, backend) for rank in range(world)]
    for one in made:
        steps(one, 3)
    return made


def extra_barrier(world: int, backend: str = "nccl") -> list[Recorder]:
    """Rank 0 alone enters a barrier before the next step."""
    made = recorders(world, backend)
    for one in made:
        if one.rank == 0:
            one.add("all_reduce_barrier" if backend == "nccl" else "barrier", [1], line=44, done=False)
        else:
            one.add("broadcast", [8], line=20, inner="buffers", done=False)
    return made


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_an_operation_that_differs(tmp_path: Path, backend: str, form: str) -> None:
    comparison = compared(write(tmp_path, extra_barrier(3, backend), form))
    found = only(comparison)
    assert (comparison.verdict, found.kind, found.index, found.group, found.odd) == ("diverged", "operation", 7, "default", [0])
    event = found.ranks[0]
    assert event is not None and event.op == "barrier"
    if form == "pickle":
        assert str(event.site) == "/home/me/train.py:44"
        other = found.ranks[1]
        assert other is not None and (other.origin, str(other.site)) == (DDP_BUFFERS, "/home/me/train.py:20")
        assert [events[1].origin for _, events in found.before][-1] == DDP_BUCKET


def test_the_order_of_files_and_folders_changes_nothing(tmp_path: Path) -> None:
    made = extra_barrier(3)
    said = []
    for number, order in enumerate(((0, 1, 2), (2, 0, 1), (1, 2, 0))):
        folder = tmp_path / str(number)
        for place, rank in enumerate(order):
            write(folder / f"host{place}", [made[rank]])
        said.append(json.dumps(as_object(compared(folder))))
    assert len(set(said)) == 1


def test_torchs_own_analyzer_names_a_rank_by_the_order_of_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the extra barrier on rank 0 torch's analyzer calls whichever ranks it did not read first the culprits."""
    said = {}
    for first in (0, 1):
        folder = write(tmp_path / str(first), extra_barrier(3))
        said[first] = torchfrtrace(folder, caplog, first)
        assert only(compared(folder)).odd == [0]
    assert "Culprit rank 1" in said[0] and "Culprit rank 0" not in said[0]
    assert "Culprit rank 0" in said[1]


def torchfrtrace(folder: Path, caplog: pytest.LogCaptureFixture, first: int) -> str:
    """What torch's analyzer logs, when the file of rank `first` is the first that os.walk returns."""
    fr_trace = pytest.importorskip("torch.distributed.flight_recorder.fr_trace")
    walk = os.walk

    def ordered(path: str) -> object:
        for root, folders, files in walk(path):
            yield root, folders, sorted(files, key=lambda name: (not name.endswith(str(first)), name))

    caplog.clear()
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, logger="Flight Recorder"):
        patch.setattr(os, "walk", ordered)
        fr_trace.main([str(folder)])
    return caplog.text


def test_torchs_own_analyzer_fails_on_dumps_of_gloo(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path, extra_barrier(2, "gloo"))
    with pytest.raises(KeyError):
        torchfrtrace(folder, caplog, 0)
    assert only(compared(folder)).kind == "operation"


def sized(one: Recorder) -> None:
    one.add("all_reduce", [4 + (one.rank == 2)], line=30, done=False)


def typed(one: Recorder) -> None:
    one.add("all_reduce", [4], dtype="BFloat16" if one.rank == 2 else "Half", line=30, done=False)


def swapped(one: Recorder) -> None:
    for op in ("all_reduce", "broadcast")[:: -1 if one.rank == 2 else 1]:
        one.add(op, [4], line=30, done=False)


def absent(one: Recorder) -> None:
    if one.rank != 2:
        one.add("all_reduce", [4], line=30, done=False)


@pytest.mark.parametrize(
    ("change", "kind", "verdict"),
    [
        (sized, "size", "diverged"),
        (typed, "dtype", "diverged"),
        (swapped, "order", "diverged"),
        (absent, "missing-rank", "stalled"),
    ],
)
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_what_else_can_differ(tmp_path: Path, change: Callable[[Recorder], None], kind: str, verdict: str, backend: str) -> None:
    made = recorders(4, backend)
    for one in made:
        change(one)
    comparison = compared(write(tmp_path, made))
    assert (comparison.verdict, only(comparison).kind, only(comparison).odd) == (verdict, kind, [2])
    assert comparison.exit_code == 1


def test_equal_numbers_of_elements_in_other_shapes_are_no_difference(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = recorders(2)
    for one in made:
        one.add("all_reduce", [6] if one.rank else [2, 3], line=30)
    folder = write(tmp_path, made)
    assert compared(folder).verdict == "agreed"
    assert "SIZE_OR_SYNTAX_MISMATCH" in torchfrtrace(folder, caplog, 0)  # a false alarm of torch's analyzer


@pytest.mark.parametrize(("backend", "said"), [("nccl", ", which its device has begun."), ("gloo", "train.py:30.")])
def test_whether_a_device_has_begun(tmp_path: Path, backend: str, said: str) -> None:
    made = recorders(2, backend)
    for one in made:
        one.add("all_reduce", [4 + one.rank], line=30, done=False)
    text = " ".join(render(compared(write(tmp_path, made))).split())
    assert "Rank 0: waits in all_reduce of 4 float32 (user call) at" in text and said in text
    for one in made:
        one.entries[-1]["state"] = "scheduled"
    if backend == "nccl":
        assert ", which its device has not begun." in " ".join(render(compared(write(tmp_path, made))).split())


def test_all_is_well(tmp_path: Path) -> None:
    comparison = compared(write(tmp_path, recorders(2)))
    assert (comparison.verdict, comparison.divergences, comparison.exit_code) == ("agreed", [], 0)
    assert render(comparison).startswith("The 2 ranks agree in 6 collectives.")


def test_a_rank_that_runs_behind_is_not_missing_where_all_wait_in_one_collective(tmp_path: Path) -> None:
    made = recorders(2)
    for one in made:
        one.add("all_reduce", [4], line=30, done=False)
        if one.rank == 0:  # the host of rank 0 has enqueued more already
            one.add("all_reduce", [4], line=31, done=False)
    comparison = compared(write(tmp_path, made))
    assert (comparison.verdict, comparison.parted) == ("stalled", [])
    assert "no rank is missing" in " ".join(render(comparison).split())


def test_ranks_without_a_dump(tmp_path: Path) -> None:
    """All others wait in one collective: it is the rank without a dump that they wait for."""
    made = recorders(8)
    for one in made:
        one.add("all_reduce", [4], line=30, done=False)
    folder = write(tmp_path, [one for one in made if one.rank != 5])
    found = only(compared(folder))
    assert (found.kind, found.index, found.ranks[5], found.odd) == ("missing-rank", 7, None, [5])


def test_ranks_without_a_dump_are_not_blamed_for_what_others_do(tmp_path: Path) -> None:
    made = extra_barrier(8)
    found = only(compared(write(tmp_path / "a", made[:6])))
    assert (found.kind, found.odd) == ("operation", [0])
    waiting = recorders(8)
    for one in waiting:
        absent(one)
    found = only(compared(write(tmp_path / "b", waiting[:6])))
    assert (found.kind, [rank for rank, event in found.ranks.items() if event is None and rank in found.odd]) == (
        "missing-rank",
        [2],
    )
    comparison = compared(write(tmp_path / "c", recorders(8)[:6]))
    assert (comparison.verdict, comparison.parted, comparison.exit_code) == ("incomplete", [], 2)


def test_groups_of_one_name_and_other_ranks(tmp_path: Path) -> None:
    """The groups of a mesh have one name and are told apart by their ranks."""
    made = []
    for rank in range(4):
        own = [0, 1] if rank < 2 else [2, 3]
        one = Recorder(rank, 4, groups={("5", "tp"): own})
        steps(one, 1)
        one.add("all_reduce", [4 if rank < 2 else 9], line=50, group=("5", "tp"))
        one.add("all_gather" if rank == 3 else "all_reduce", [4], line=51, group=("5", "tp"), done=rank < 2)
        made.append(one)
    found = only(compared(write(tmp_path, made)))
    assert (found.group, sorted(found.ranks), found.kind) == ("5 (tp) of ranks 2 and 3", [2, 3], "operation")


def test_a_full_recorder_keeps_the_last_entries_only(tmp_path: Path) -> None:
    made = recorders(2)
    for one in made:
        one.add("all_reduce", [4], line=40, group=("7", "rare"))
        steps(one, 40)
        one.add("all_reduce", [4 + one.rank], line=30, done=False)
    for one, keep in zip(made, (5, 60), strict=True):
        (tmp_path / f"trace_rank_{one.rank}").write_bytes(pickle.dumps(one.dump(keep)))
    found = only(compared(tmp_path))
    assert (found.kind, found.index) == ("size", 87)


def test_a_group_that_left_a_full_recorder_lacks_nobody(tmp_path: Path) -> None:
    made = recorders(2)
    for one in made:
        one.add("all_reduce", [4], line=40, group=("7", "rare"), done=one.rank == 0)
        steps(one, 40)
    for one, keep in zip(made, (5, None), strict=True):
        (tmp_path / f"trace_rank_{one.rank}").write_bytes(pickle.dumps(one.dump(keep)))
    assert compared(tmp_path).parted == []


def test_parts_of_a_coalesced_call_are_one_collective(tmp_path: Path) -> None:
    made = recorders(2)
    for one in made:
        one.add("all_reduce", [4], line=60)
        one.add("all_reduce", [5 + one.rank], line=60, same_number=True, done=False)
        one.add("coalesced", line=60, same_number=True, done=False)
    found = only(compared(write(tmp_path, made)))
    assert (found.kind, found.index, [event.numel for event in found.ranks.values() if event]) == ("size", 7, [9, 10])


def test_of_two_dumps_of_a_rank_the_later_counts(tmp_path: Path) -> None:
    early, late = recorders(2), extra_barrier(2)
    write(tmp_path / "a", late)
    write(tmp_path / "b", early)
    write(tmp_path / "c", late, "json", "fr_{}.json")
    assert {rank: dump.path.parent.name for rank, dump in find_dumps(tmp_path).items()} == {0: "a", 1: "a"}


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "mark"

    class Bad:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {mark}",)

    folder = write(tmp_path / "dumps", recorders(2))
    value = {**recorders(2)[1].dump(), "extra": Bad()}
    (folder / "nccl_trace_rank_1").write_bytes(pickle.dumps(value))
    assert main(["diff", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "nccl_trace_rank_1: refers to posix.system" in said and said.count("\n") == 1
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("trace_rank_1", b"\x80\x02}q\x00(X", "damaged or truncated"),
        ("trace_rank_1", pickle.dumps({"version": "3.1", "entries": [], "pg_config": {}}), "version 3.1"),
        ("trace", pickle.dumps({"version": "2.4", "entries": [], "pg_config": {}}), "name does not end with its rank"),
        ("trace_rank_1", pickle.dumps({"version": "2.4", "entries": [{"state": "x"}], "pg_config": {}}), "damaged"),
        ("trace_rank_1.json", b'{"version": "2.4", "pg_config"', "damaged"),
    ],
)
def test_damaged_dumps_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    write(tmp_path, recorders(1))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError) as caught:
        load_dumps(tmp_path)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_no_dump_is_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, recorders(2))
    (folder / "notes_7.json").write_text('{"loss": 3}')
    (folder / "weights_3.bin").write_bytes(pickle.dumps([1, 2]))
    (folder / "worker_1.log").write_text("{")
    assert sorted(load_dumps(folder)) == [0, 1]
    for path in folder.iterdir():
        if path.name.startswith("nccl"):
            path.unlink()
    with pytest.raises(TraceError, match="no trace in it"):
        load_dumps(folder)


@pytest.mark.parametrize("version", ["2.0", "2.4", "2.10"])
def test_older_versions_lack_some_fields(tmp_path: Path, version: str) -> None:
    made = extra_barrier(3)
    for one in made:
        one.version = version
        if version != "2.10":
            for entry in one.entries:
                for name in ("pg_id", "timeout_ms", "is_p2p", "retired", "input_dtypes", "output_dtypes"):
                    del entry[name]
            one._status.clear()
    found = only(compared(write(tmp_path, made)))
    assert (found.kind, found.odd) == ("operation", [0])


RANK = """
import os, sys, time
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
for step in range(3):
    dist.all_reduce(torch.ones(4))
if rank == 0:
    dist.broadcast(torch.ones(4), 0, async_op=True)
else:
    dist.all_reduce(torch.ones(4), async_op=True)
time.sleep(0.5)
with open(f"{folder}/pickle/trace_rank_{rank}", "wb") as file:
    file.write(c10d._dump_fr_trace())
with open(f"{folder}/json/trace_rank_{rank}", "wb") as file:
    file.write(c10d._dump_fr_trace_json())
open(f"{folder}/done{rank}", "w").close()
while not os.path.exists(f"{folder}/done{1 - rank}"):
    time.sleep(0.05)
os._exit(0)
"""


def test_dumps_of_a_real_run(tmp_path: Path) -> None:
    binding = pytest.importorskip("torch._C._distributed_c10d")
    if not hasattr(binding, "_dump_fr_trace"):
        pytest.skip("this torch has no Flight Recorder for gloo")
    (tmp_path / "train.py").write_text(RANK)
    for name in ("pickle", "json"):
        (tmp_path / name).mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
    line = [sys.executable, "train.py"]
    ranks = [subprocess.Popen([*line, str(r), str(tmp_path)], cwd=tmp_path, env=environment) for r in range(2)]
    try:
        assert [one.wait(60) for one in ranks] == [0, 0]
    finally:
        for one in ranks:
            one.kill()
    for form in ("pickle", "json"):
        comparison = compared(tmp_path / form)
        found = only(comparison)
        assert (comparison.verdict, found.kind, found.index) == ("diverged", "operation", 4)
        assert [event.op for event in found.ranks.values() if event] == ["broadcast", "all_reduce"]
    pickled = only(compared(tmp_path / "pickle")).ranks
    assert [event.site.line for event in pickled.values() if event and event.site] == [11, 13]
    shutil.rmtree(tmp_path / "pickle")


def exchange(sizes: tuple[int, int] = (64, 64), *, batch: bool = False, done: bool = True) -> list[Recorder]:
    """Rank 0 sends to rank 1 twice; the ranks are 2 and 3 of the run, of a group of their own."""
    made = [Recorder(rank, 4, groups={("7", "pair"): [2, 3]}) for rank in range(4)]
    for one in made[:2]:
        steps(one, 1)
    for rank, call in ((2, "send 0->1"), (3, "recv 1<-0")):
        steps(made[rank], 1)
        for size in (8, sizes[rank - 2]):
            made[rank].message(call, [size], line=30 + rank, done=done, batch=batch)
        if batch:
            made[rank].end_batch(done=done)
    return made


@pytest.mark.parametrize("batch", [False, True])
def test_messages_that_meet_and_a_batch_whose_parts_never_say_that_they_are_done(tmp_path: Path, batch: bool) -> None:
    comparison = compared(write(tmp_path, exchange(batch=batch)))
    assert (comparison.verdict, comparison.divergences) == ("agreed", [])


def test_messages_of_two_sizes(tmp_path: Path) -> None:
    found = only(compared(write(tmp_path, exchange((64, 32)))))
    assert (found.kind, found.index, found.message, found.group) == ("size", 1, (2, 3), "7 (pair)")
    assert [str(event.site) for event in found.ranks.values() if event] == ["/home/me/train.py:32", "/home/me/train.py:33"]


def test_a_receive_that_nobody_sends(tmp_path: Path) -> None:
    made = exchange()
    made[3].message("recv 1<-0", [5], line=40, done=False)
    found = only(compared(write(tmp_path, made)))
    assert (found.kind, found.index, found.message, found.ranks[2]) == ("missing-rank", 2, (2, 3), None)
    event = found.ranks[3]
    assert event is not None and event.detail["peer"] == 2 and event.detail["async"] is False


def test_what_a_full_recorder_has_lost_is_not_missed(tmp_path: Path) -> None:
    made = exchange((64, 32))
    made[2].entries = made[2].entries[-1:]  # its first send fell out of the ring
    assert compared(write(tmp_path / "wrapped", made)).parted == []
    del made[2].entries[:]
    assert compared(write(tmp_path / "one", [made[0], made[1], made[3]])).parted == []
