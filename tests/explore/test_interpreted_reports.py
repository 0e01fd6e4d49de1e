"""How a predicted run is reported, and runs that are followed to a bound: loops of unknown length, ranks that leave early."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpreted import judged, predicted, sizes

from ddp_audit.events import Event
from ddp_audit.report import run_json, run_text

# ---- reports


def test_the_report_fits_a_terminal_and_shows_the_ranks_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = """
model = DDP(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    with model.no_sync():
        loss = model(torch.randn(2, 2)).sum()
    loss.backward()
    optimizer.step()
    if rank == 0 and step == 1:
        dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX)
"""
    text = run_text.render(judged(predicted(tmp_path, body)), "script.py")
    assert max(map(len, text.splitlines())) <= 80
    assert "The run hangs" in text or "aborted" in text
    row = next(line for line in text.splitlines() if "all_reduce of 3 float32, max" in line)
    assert " ! " in row
    assert "LOCAL 0.weight, 0.bias" in text
    assert "up to 3 steps on ranks 0 and 1" in text


def test_the_json_lists_each_rank(tmp_path: Path) -> None:
    found = run_json.as_object(judged(predicted(tmp_path, "dist.broadcast(torch.ones(2), src=1)\n")), "script.py")
    assert found["outcome"] == "completes"
    for rank in ("0", "1"):
        event: Event = found["ranks"][rank][0]
        assert event == {
            "kind": "collective", "op": "broadcast", "origin": "user", "numel": 2, "dtype": "float32", "root": 1,
            "reduce_op": None, "site": found["ranks"]["0"][0]["site"],
        }  # fmt: skip


def test_the_guard_that_parts_the_ranks_is_named_across_calls(tmp_path: Path) -> None:
    body = """
def is_main():
    return rank == 0


def report(value):
    dist.all_reduce(value)


for step in range(3):
    if is_main():
        pass
    if step == 1:
        if is_main():
            report(torch.ones(2))
    dist.barrier()
"""
    run = predicted(tmp_path, body)
    assert run.kind == "hangs"
    [found] = run_json.as_object(judged(run), "script.py")["divergences"][0]["guards"].values()
    assert (found["text"], found["taken"]) == ("is_main()", True)
    text = run_text.render(judged(run), "script.py")
    assert "is true on rank 0 (lines 24 > 16)" in " ".join(text.split())


# ---- loops of unknown length, and ranks that leave early

LINES = """
import sys
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
every = {every}
for number, line in enumerate(sys.stdin):
    model.require_backward_grad_sync = (number + 1) % every == 0
    model(torch.randn(4, 4)).mean().backward()
    if (number + 1) % every == 0:
        optimizer.step()
        optimizer.zero_grad()
{after}
"""


@pytest.mark.parametrize(("every", "times", "buckets"), [(1, 3, 3), (2, 5, 2), (4, 9, 2), (500, 3, 0)])
def test_a_loop_of_unknown_length_comes_to_a_steady_state(tmp_path: Path, every: int, times: int, buckets: int) -> None:
    run = predicted(tmp_path, LINES.format(every=every, after=""))
    assert len(sizes(run, "ddp-bucket")) == buckets
    (bound,) = run.bounds
    assert f"ran {times} times" in bound and bound.endswith("script.py:15)")
    assert ("two windows of" in bound) is (times > 3)
    assert "Not followed to its end" in run_text.render(judged(run), "script.py")


def test_a_part_of_a_last_window_is_seen(tmp_path: Path) -> None:
    assert predicted(tmp_path, LINES.format(every=4, after="")).local_steps() == []
    after = predicted(tmp_path, LINES.format(every=4, after="optimizer.step()")).local_steps()
    assert len(after) == 2 and {e.site.line for e in after if e.site} == {21}


def test_a_while_of_unknown_length_has_windows_too(tmp_path: Path) -> None:
    body = "import sys\nnumber = 0\nwhile sys.stdin.read(1):\n    number += 1\n    if number % 3 == 0:\n        dist.barrier()\n"
    run = predicted(tmp_path, body)
    assert [e.op for e in run.collectives(0)] == ["barrier", "barrier"]
    assert any("two windows of 3" in bound for bound in run.bounds)


@pytest.mark.parametrize(
    ("body", "guards"),
    [
        ("def f():\n    if rank != 0:\n        return\n    dist.barrier()\nf()\n", {0: ("rank != 0", False)}),
        ("for i in range(3):\n    if i % 2 == rank:\n        continue\n    dist.all_reduce(torch.ones(2))\n", {1: ("i % 2 == rank", False)}),
        ("def f():\n    if rank == 0:\n        pass\n    else:\n        return\n    dist.barrier()\nf()\n", {0: ("rank == 0", True)}),
        ("if rank == 0:\n    dist.barrier()\n", {0: ("rank == 0", True)}),
        ("def f():\n    if world_size < 2:\n        return\n    if rank == 0:\n        dist.barrier()\nf()\n", {0: ("rank == 0", True)}),
    ],
    ids=["return", "continue", "the other arm returns", "around it", "one that all ranks take alike"],
)  # fmt: skip
def test_the_guard_of_the_first_divergence_is_named(tmp_path: Path, body: str, guards: dict[int, tuple[str, bool]]) -> None:
    run = predicted(tmp_path, body)
    first = run.divergences()[0]
    found = {rank: run.guard_of(rank, event) for rank, event in first.ranks.items() if event is not None}
    assert {rank: (taken.text, taken.answer) for rank, taken in found.items() if taken is not None} == guards


def test_an_early_exit_guards_no_more_than_the_rest_of_its_block(tmp_path: Path) -> None:
    body = "def f():\n    if rank != 0:\n        return\n    print('first')\nf()\nif rank == 1:\n    dist.barrier()\n"
    run = predicted(tmp_path, body)
    guard = run.guard_of(1, run.collectives(1)[0])
    assert guard is not None and guard.text == "rank == 1"
    after = predicted(tmp_path, "def f():\n    if rank != 0:\n        return\nf()\ndist.all_reduce(torch.ones(1 + rank))\n")
    assert after.guard_of(0, after.collectives(0)[0]) is None


@pytest.mark.parametrize(
    "text",
    [
        "import lightning as L\nL.Trainer(devices=2).fit(L.LightningModule())\n",
        "from accelerate import Accelerator\nmodel = Accelerator(cpu=True).prepare(nn.Linear(4, 1))\nmodel(torch.ones(2, 4)).sum().backward()\n",
        "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine(model=nn.Linear(4, 1)).train()\n",
        "import deepspeed\nengine, *_ = deepspeed.initialize(model=nn.Linear(4, 1))\nengine.step()\n",
        "from torch.distributed.optim import ZeroRedundancyOptimizer as ZeRO\n"
        "ZeRO(nn.Linear(4, 1).parameters(), torch.optim.SGD, lr=0.1).step()\n",
    ],
    ids=["lightning", "accelerate", "trainer of one's own", "deepspeed", "ZeRO"],
)
def test_a_library_that_communicates_by_itself_leaves_the_end_open(tmp_path: Path, text: str) -> None:
    run = predicted(tmp_path, "dist.barrier()\n" + text)
    assert len(run.collectives(0)) == 1
    assert run.kind in ("goes on", "nothing predicted") and not run.is_whole
    assert any("not followed" in bound for bound in run.bounds)
    assert run.certain[0] <= len(run.sequences[0])  # what came before still holds
    shown = run_text.render(judged(run), "script.py")
    assert "The run completes" not in shown and "Not followed to its end" in shown


def test_harmless_names_of_such_a_library_are_passed_over(tmp_path: Path) -> None:
    text = "from accelerate.utils import set_seed\nfrom transformers import GPT2Config\nset_seed(1)\nGPT2Config()\ndist.barrier()\n"
    run = predicted(tmp_path, text)
    assert run.kind == "completes" and run.bounds == []
