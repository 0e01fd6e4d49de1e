"""Real torchrun runs of two ranks on gloo, traced and compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.run import RecordedRun
from ddp_audit.compare.verdict import Comparison
from ddp_audit.report import trace_json, trace_text

pytest.importorskip("torch")

from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

PRELUDE = """
import datetime
import time
import torch
import torch.distributed as dist
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel as DDP
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
"""

DIFFERENT_OPERATIONS = """
def metric():
    dist.all_reduce(torch.ones(3))  # METRIC

metric()
if rank == 0:
    metric()
else:
    dist.barrier()  # BARRIER
"""

OPPOSITE_ORDER = """
small, large = torch.ones(2), torch.ones(3)
works = [dist.all_reduce(t, async_op=True) for t in ((small, large) if rank == 0 else (large, small))]
for work in works:
    work.wait()
"""

EARLY_EXIT = """
for step in range(4):
    if rank == 1 and step == 2:
        break
    dist.all_reduce(torch.ones(1))  # STEP
"""

CIRCLE = """
part = torch.ones(3)
dist.send(part, 1) if rank == 0 else dist.recv(part, 0)
work = dist.isend(part, 1 - rank)
dist.irecv(part, 1 - rank).wait()
dist.recv(part, 1 - rank)  # CIRCLE
dist.send(part, 1 - rank)
"""

CROSSED_AND_SILENT = """
torch.manual_seed(rank)
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def evaluate():
    with torch.no_grad():
        model(torch.randn(8, 4))  # EVALUATE

def train(sync):
    model.require_backward_grad_sync = sync
    loss = model(torch.randn(8, 4)).sum()  # TRAIN
    model.require_backward_grad_sync = True
    loss.backward()
    optimizer.step()  # UPDATE
    optimizer.zero_grad()

for step in range(4):
    if step == 2 and rank == 0:
        evaluate()
    train(True)
train(False)
dist.barrier()
dist.destroy_process_group()
"""

LEGAL = """
from contextlib import contextmanager

@contextmanager
def main_process_first():
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()

def receive():
    box = [None]
    dist.broadcast_object_list(box)
    return box[0]

def send(value):
    dist.broadcast_object_list([value])
    return value

def head(value):
    if rank == 0:
        dist.all_reduce(value)
        return value * 2
    dist.all_reduce(value)
    return value

with main_process_first():
    pass
config = send({"a": 1}) if rank == 0 else None
if rank != 0:
    config = receive()
head(torch.ones(2))
gathered = [None, None]
dist.all_gather_object(gathered, "x" * (1 + 100 * rank))
dist.gather_object("y" * (1 + 50 * rank), gathered if rank == 0 else None)
box = [None]
dist.scatter_object_list(box, ["a", "b" * 99] if rank == 0 else None)
part = torch.zeros(3)
dist.scatter(part, list(torch.ones(2, 3)) if rank == 0 else None)
dist.gather(part, [torch.zeros(3), torch.zeros(3)] if rank == 0 else None)
dist.all_reduce(torch.ones(6) if rank == 0 else torch.ones(2, 3))
alone = [dist.new_group([r]) for r in range(2)]
for _ in range(1 + rank):
    dist.all_reduce(torch.ones(rank + 1), group=alone[rank])
if rank == 0:
    dist.send(torch.ones(4), 1)
    dist.recv(torch.ones(4), 1)
else:
    dist.recv(torch.ones(4), 0)
    dist.send(torch.ones(4), 0)
kept = [dist.isend(torch.ones(3 + tag), 1, tag=tag) if rank == 0 else dist.irecv(torch.ones(3 + tag), 0, tag=tag) for tag in range(3)]
batch = [dist.P2POp(dist.isend, torch.ones(2), 1 - rank), dist.P2POp(dist.irecv, torch.ones(2), 1 - rank)]
for work in dist.batch_isend_irecv(batch):
    work.wait()
time.sleep(2.5)  # longer than a stall, and nobody has waited for what is kept: gloo never says that it is done

torch.manual_seed(rank)
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    with model.no_sync():
        model(torch.randn(8, 4)).sum().backward()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        with torch.no_grad():
            model.module(torch.randn(8, 4))
with model.join():
    for step in range(2 + rank):
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
"""


class Traced:
    """One traced run: what was seen while it ran, and what its folder says afterwards."""

    def __init__(self, folder: Path, body: str, stall_after: float = 2.0, on_stall: str = "kill") -> None:
        self.text = PRELUDE + body
        self.script = folder / "train.py"
        self.script.write_text(self.text)
        live = LiveComparison()
        self.seen: list[str] = []

        def look(run: RecordedRun) -> bool:
            self.seen += [divergence.kind for divergence in live.update(run)]
            return bool(self.seen)

        self.stalls: set[str] = set()  # the operations that were taken for a stall

        def stalled(run: RecordedRun) -> None:
            self.stalls |= {rank.waiting.op for rank in run.ranks.values() if rank.waiting is not None}

        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(self.script)]
        self.result = run_traced(
            command,
            directory=folder / "trace",
            stall_after=stall_after,
            on_stall=on_stall,
            on_stall_report=stalled,
            on_divergence=look,
            poll=0.1,
        )
        self.run = load_run(folder / "trace")
        self.comparison: Comparison = live.finish(self.run)

    def line(self, mark: str) -> int:
        return next(n for n, line in enumerate(self.text.splitlines(), 1) if line.endswith(f"# {mark}"))

    def only(self) -> dict[str, object]:
        """The one divergence, from the JSON."""
        (found,) = json.loads(trace_json.render(self.comparison))["divergences"]
        return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def test_different_operations_with_both_lines(folder: Path) -> None:
    traced = Traced(folder, DIFFERENT_OPERATIONS)
    found = traced.only()
    assert (found["group"], found["index"], found["kind"], found["odd"]) == ("default", 1, "operation", [])
    zero, one = found["ranks"]["0"], found["ranks"]["1"]  # type: ignore[index]
    assert (zero["op"], zero["numel"], zero["site"]) == ("all_reduce", 3, f"train.py:{traced.line('METRIC')}")
    assert (one["op"], one["site"]) == ("barrier", f"train.py:{traced.line('BARRIER')}")
    assert traced.seen == ["operation"], "told while the ranks were waiting"
    assert traced.result.killed
    assert (traced.comparison.verdict, traced.comparison.exit_code) == ("diverged", 1)
    text = trace_text.render(traced.comparison, root=folder)
    assert "dist.all_reduce(torch.ones(3))" in text and "dist.barrier()" in text


def test_opposite_order(folder: Path) -> None:
    traced = Traced(folder, OPPOSITE_ORDER)
    found = traced.only()
    assert (found["index"], found["kind"]) == (0, "order")
    assert [found["ranks"][rank]["numel"] for rank in "01"] == [2, 3]  # type: ignore[index]


def test_a_rank_that_leaves_early(folder: Path) -> None:
    traced = Traced(folder, EARLY_EXIT)
    found = traced.only()
    assert (found["index"], found["kind"], found["ranks"]["1"]) == (2, "missing-rank", None)  # type: ignore[index]
    assert found["ranks"]["0"]["site"] == f"train.py:{traced.line('STEP')}"  # type: ignore[index]
    assert "Rank 1 exited with code 0" in str(found["explanation"])


def test_both_ranks_receive_first(folder: Path) -> None:
    traced = Traced(folder, CIRCLE)
    found = traced.only()
    assert (found["kind"], found["message"]) == ("order", {"from": 1, "to": 0})
    assert traced.seen in ([], ["order"]), "told while the ranks wait, if the machine is not too busy"
    site = f"train.py:{traced.line('CIRCLE')}"
    sides = [(one["op"], one["peer"], one["async"], one["site"]) for one in found["ranks"].values()]  # type: ignore[attr-defined]
    assert sides == [("recv", 1, False, site), ("recv", 0, False, site)]
    assert found["index"] == 1, "the message before it has met"
    assert traced.result.killed


def test_legal_patterns_are_silent(folder: Path) -> None:
    traced = Traced(folder, LEGAL, on_stall="report")  # a full machine may well be slower than a stall
    comparison = traced.comparison
    assert traced.result.exit_code == 0
    assert not traced.stalls & {"send", "recv"}, "nobody waits for what is kept"
    assert (comparison.verdict, traced.seen) == ("agreed", [])
    assert trace_text.render(comparison, root=folder).splitlines()[1:] == []
    assert comparison.exit_code == 0


def test_crossed_places_and_silent_faults_of_a_run_that_ends_well(folder: Path) -> None:
    traced = Traced(folder, CROSSED_AND_SILENT, stall_after=60)
    comparison = traced.comparison
    assert traced.result.exit_code == 0
    assert (comparison.verdict, comparison.parted, traced.seen) == ("agreed", [], [])
    assert comparison.crossed, "rank 0's evaluation met rank 1's training forward"
    lines = {event.site.line for event in comparison.crossed[0].ranks.values() if event is not None and event.site is not None}
    assert lines == {traced.line("EVALUATE"), traced.line("TRAIN")}
    assert {fault.kind for fault in comparison.silent} == {"gradients-not-reduced", "parameters-differ"}
    unreduced = comparison.silent[0]
    assert (str(unreduced.site), unreduced.ranks) == (f"train.py:{traced.line('UPDATE')}", (0, 1))
    assert comparison.exit_code == 1
