"""Split sizes of all_to_all: what one rank sends another must be what that one expects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import events
from ddp_audit.compare.align import align
from ddp_audit.compare.bulk import Places, aligned
from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.run import EXITED, RankRun, RecordedRun
from ddp_audit.compare.splits import Apart, shares_of, splits_apart
from ddp_audit.events import Event
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.store import FollowRun
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring


def exchange(sends: Any, receives: Any, index: int = 0) -> Event:
    shares = {key: value for key, value in (("sends", sends), ("receives", receives)) if value is not None}
    return Event(events.COLLECTIVE, "all_to_all", "default", index, events.USER, 8, "float32", detail=shares)


@pytest.mark.parametrize(
    ("row", "order", "found"),
    [
        ({0: (4, 4), 1: (4, 4)}, (0, 1), []),
        ({0: ([1, 7], [1, 2]), 1: ([2, 6], [7, 6])}, (0, 1), []),
        ({0: ([1, 7], [1, 2]), 1: ([2, 6], [6, 6])}, (0, 1), [Apart(0, 1, 7, 6)]),
        ({0: ([2, 6], [2, 6]), 1: ([2, 6], [2, 6])}, (0, 1), [Apart(0, 1, 6, 2), Apart(1, 0, 2, 6)]),
        ({0: (4, 4), 1: ([3, 5], [4, 4])}, (0, 1), [Apart(1, 0, 3, 4), Apart(1, 1, 5, 4)]),
        ({3: ([1, 2], [1, 5]), 7: ([5, 1], [2, 1])}, (3, 7), []),
        ({3: ([1, 2], [1, 5]), 7: ([5, 1], [2, 1])}, (7, 3), [Apart(7, 7, 5, 2), Apart(3, 3, 2, 5)]),
        ({0: (None, None), 1: ([3, 5], [4, 5])}, (0, 1), []),
        ({0: ([1, 7], None), 1: (None, [6, 6])}, (0, 1), [Apart(0, 1, 7, 6)]),
        ({0: ([1], [1]), 1: ("x", [True, None])}, (0, 1), []),
    ],
)
def test_which_ranks_disagree(row: dict[int, tuple[Any, Any]], order: tuple[int, ...], found: list[Apart]) -> None:
    assert splits_apart({rank: exchange(*shares) for rank, shares in row.items()}, order) == found


def of_lists(op: str, sends: Any, receives: Any, index: int = 0) -> Event:
    """A collective of lists. It has no numel: the sizes of such a call may differ on a backend that takes uneven ones."""
    shares = {key: value for key, value in (("sends", sends), ("receives", receives)) if value is not None}
    return Event(events.COLLECTIVE, op, "default", index, events.USER, None, "float32", detail=shares)


@pytest.mark.parametrize(
    ("op", "row", "found"),
    [
        ("all_gather", {0: (4, 4), 1: (4, 4)}, []),
        ("all_gather", {0: (4, [4, 5]), 1: (5, [4, 5])}, []),
        ("all_gather", {0: (4, [4, 5]), 1: (5, 5)}, [Apart(0, 1, 4, 5)]),
        ("all_gather", {0: (4, 4), 1: (5, 5)}, [Apart(0, 1, 4, 5), Apart(1, 0, 5, 4)]),
        ("reduce_scatter", {0: ([1, 7], 1), 1: ([1, 7], 7)}, []),
        ("reduce_scatter", {0: ([1, 7], 1), 1: ([7, 1], 7)}, [Apart(1, 0, 7, 1), Apart(1, 1, 1, 7)]),
        ("gather", {0: (3, [3, 9]), 1: (9, None)}, []),
        ("gather", {0: (3, 3), 1: (9, None)}, [Apart(1, 0, 9, 3)]),
        ("scatter", {0: ([2, 8], 2), 1: (None, 8)}, []),
        ("scatter", {0: ([2, 8], 2), 1: (None, 2)}, [Apart(0, 1, 8, 2)]),
        ("all_gather", {0: (None, None), 1: (None, None)}, []),
        ("broadcast", {0: (4, 4), 1: (5, 5)}, []),
    ],
)
def test_which_ranks_disagree_in_lists(op: str, row: dict[int, tuple[Any, Any]], found: list[Apart]) -> None:
    made = {rank: of_lists(op, *shares) for rank, shares in row.items()}
    assert splits_apart(made, (0, 1)) == found
    told = align({rank: [event] for rank, event in made.items()})
    assert [one.kind for one in told] == (["size"] if found else [])
    if found:
        one = found[0]
        who = f"rank {one.target}, which expects" if one.target != one.source else "itself and expects"
        assert f"sends {one.sent} float32 to {who} {one.expected}" in told[0].explanation
    run = RecordedRun(2, {rank: RankRun(rank, [event] * 1, EXITED, 0) for rank, event in made.items()})
    assert [one.explanation for one in aligned(run, Places()).mismatches()] == [one.explanation for one in told]


LISTS = """\
import os
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
many = lambda *sizes: [torch.zeros(size) for size in sizes]
def tried(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (RuntimeError, ValueError):
        pass
tried(dist.all_gather, many(1, 2), torch.zeros(1 + rank))
dist.reduce_scatter(torch.zeros(3), many(3, 3))
if rank == 0:
    dist.gather(torch.zeros(5), many(5, 5))
    dist.scatter(torch.zeros(6), many(6, 6))
else:
    dist.gather(torch.zeros(5))
    dist.scatter(torch.zeros(6))
"""


@pytest.mark.traced
def test_what_lists_hold_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LISTS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    trace = [
        sys.executable,
        "-m",
        "ddp_audit",
        "trace",
        "--no-check",
        "--dir",
        "trace",
        "--on-stall",
        "kill",
        "--stall-after",
        "20",
    ]
    subprocess.run([*trace, "--", *command], cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False)
    ranks = load_columns(tmp_path / "trace")[0].ranks
    held = [{e.op: shares_of(e) for e in ranks[rank].events if e.kind == events.COLLECTIVE and shares_of(e)} for rank in (0, 1)]
    assert held[0] == {"all_gather": (1, (1, 2)), "reduce_scatter": (3, 3), "gather": (5, 5), "scatter": (6, 6)}
    assert held[1] == {"all_gather": (2, (1, 2)), "reduce_scatter": (3, 3), "gather": (5, None), "scatter": (None, 6)}


def test_sequences_that_are_given_as_a_whole() -> None:
    good = {0: [exchange([1, 7], [1, 2])], 1: [exchange([2, 6], [7, 6])]}
    assert align(good) == []
    (told,) = align({**good, 1: [exchange([2, 6], [9, 6])]})
    assert (told.kind, told.index) == ("size", 0)
    assert told.explanation.startswith("Rank 0 sends 7 float32 to rank 1, which expects 9, in an all_to_all")


@pytest.mark.parametrize("odd", [None, 0, 1, 700])
def test_of_a_trace_read_while_it_grows_and_at_its_end(tmp_path: Path, odd: int | None) -> None:
    """Routing that changes from step to step."""
    rings = [Ring(str(tmp_path / layout.FILE_PATTERN.format(rank)), rank) for rank in range(2)]
    for rank, ring in enumerate(rings):
        start = {"rank": rank, "world_size": 2, "pid": 1, "host": "elsewhere", "ticks": 0, "run": "r"}
        told = {"action": "init", "name": "default", "ranks": [0, 1], "backend": "gloo"}
        for kind, detail in ((events.START, start), (events.GROUP, told)):
            text = {"kind": kind, "group": "default", "stack": 0, "detail": detail}
            ring.write_value(0, ring.define(layout.EVENT_TEXT, text), 0, 1.0, 0)
        for step in range(800):
            table = [[step % 5, 3], [1 + step % 3, 4]]
            sends, receives = table[rank], [row[rank] + (step == odd and rank == 1) for row in table]
            text = {"op": "all_to_all", "call": "alltoall_base_", "group": "default", "origin": "user", "dtype": "float32"}
            text |= {"numel": sum(sends), "shape": [[sum(sends)]], "root": None, "reduce_op": None, "async": False, "stack": 0}
            definition = ring.define(layout.SIGNATURE_TEXT, {**text, "sends": sends, "receives": receives})
            ring.write(layout.COLLECTIVE, 0, definition, step, 2.0 + step, 2.5 + step)
    live = LiveComparison(patience=0)
    found = live.update(FollowRun(tmp_path, consume=live.take).poll())
    at_end = aligned(*load_columns(tmp_path)).mismatches()
    for told in (found, at_end):
        assert [one.index for one in told] == ([] if odd is None else [odd])
        assert all("sends 3 float32 to rank 1, which expects 4" in one.explanation for one in told)


SCRIPT = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    counts = [2 + step, 3] if rank == 0 else [1, 4]
    x = torch.ones(sum(counts), 4)
    expected = torch.empty(2, dtype=torch.int64)
    dist.all_to_all_single(expected, torch.tensor(counts))
    expected = expected.tolist()
    if sys.argv[1] != "good" and step == 2 and rank == 1:
        expected[0] += 1
    dist.all_to_all_single(x.new_empty(sum(expected), 4), x, expected, counts)
dist.barrier()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("kernel", ["off", "auto"])
@pytest.mark.parametrize("how", ["good", "more"])
def test_a_mixture_of_experts_that_routes_wrong(tmp_path: Path, how: str, kernel: str) -> None:
    (tmp_path / "moe.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "moe.py", how]
    options = ["--no-check", "--native", kernel, "--stall-after", "4", "--on-stall", "kill"]
    ended = subprocess.run(
        [sys.executable, "-m", "ddp_audit", "trace", *options, "--", *launch],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    text = " ".join(ended.stdout.split())
    if how == "good":
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "The 2 ranks agree in 9 collectives" in text
    else:
        assert ended.returncode == 1, ended.stdout + ended.stderr
        assert "Rank 0 sends 12 float32 to rank 1, which expects 16" in text
        assert "Collective 5 of the default group" in text
