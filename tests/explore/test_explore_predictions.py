"""Predicted sequences of small programs: what each rank issues, where the ranks part, how the run ends.

The programs stand for cases whose outcome was seen in real runs; the tests of the machine hold it against torch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.explore import Exploration, Prediction, Scenario, explore, proof
from ddp_audit.explore.alone import Lone, lone_forward
from ddp_audit.explore.exact import Bounds, Job
from ddp_audit.program import lower
from ddp_audit.program.nodes import Forward
from ddp_audit.source.project import Project

HEAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def exploration(folder: Path, text: str) -> Exploration:
    """An exploration of a script of this text."""
    script = folder / "script.py"
    script.write_text(text)
    project = Project([script])
    return explore(lower(project, project.entries[0]))


def predicted(folder: Path, body: str) -> Prediction:
    """The prediction for a training loop of four steps with this text in it or after it."""
    return exploration(folder, HEAD + body).predict(Scenario(iterations=4))


def origins(prediction: Prediction, rank: int) -> list[str]:
    """Origins of a rank's collectives, the constructor's left out."""
    return [e.origin for e in prediction.collectives(rank) if e.origin != "ddp-constructor"]


def test_plain_training_agrees_and_rebuilds_its_buckets_in_the_second_forward(tmp_path: Path) -> None:
    prediction = predicted(tmp_path, "for step in range(3):" + STEP)
    assert origins(prediction, 0) == origins(prediction, 1)
    assert origins(prediction, 0)[:5] == ["ddp-buffers", "ddp-bucket", "ddp-rebuild", "ddp-rebuild", "ddp-buffers"]
    assert prediction.outcome.kind == "completes"
    assert prediction.divergences() == []


@pytest.mark.parametrize(
    ("after", "kind"),
    [("", "hangs"), ("    dist.barrier()\n", "hangs")],
    ids=["after every step, so the last one has no partner", "before a barrier"],
)
def test_evaluation_on_rank_0_alone(tmp_path: Path, after: str, kind: str) -> None:
    body = (
        f"for step in range(4):{STEP}    if rank == 0:\n        with torch.no_grad():\n            model(torch.ones(8, 4))\n{after}"
    )
    prediction = predicted(tmp_path, body)
    assert prediction.outcome.kind in (kind, "aborts")
    lone = [e for e in prediction.collectives(0) if e.site is not None and "torch.ones" in _line(tmp_path, e.site.line)]
    assert lone and all(e.origin == "ddp-buffers" for e in lone)


def test_evaluation_before_training_crosses_and_goes_on(tmp_path: Path) -> None:
    body = f"if rank == 0:\n    with torch.no_grad():\n        model(torch.ones(8, 4))\nfor step in range(4):{STEP}"
    prediction = predicted(tmp_path, body)
    assert prediction.outcome.kind == "completes"
    assert [d.kind for d in prediction.divergences()] == ["crossed"]


def test_no_sync_leaves_gradients_local_only_where_the_step_is_inside(tmp_path: Path) -> None:
    good = """
for step in range(4):
    for micro in range(2):
        if micro < 1:
            with model.no_sync():
                model(torch.randn(8, 4)).mean().backward()
        else:
            model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    assert predicted(tmp_path, good).local_steps() == []
    bad = good.replace("micro < 1", "micro < 2")
    steps = predicted(tmp_path, bad).local_steps()
    assert steps and all("optimizer.step()" in _line(tmp_path, s.site.line) for s in steps if s.site is not None)


def test_a_collective_that_rank_1_skips_is_where_the_sequences_part(tmp_path: Path) -> None:
    body = f"total = torch.ones(1)\nfor step in range(2):{STEP}    if rank == 0:\n        dist.all_reduce(total)\n"
    prediction = predicted(tmp_path, body)
    first = prediction.divergences()[0]
    assert first.kind == "operation"
    entries = {rank: event for rank, event in first.ranks.items() if event is not None}
    assert entries[0].op == "all_reduce" and entries[0].origin == "user"
    assert entries[1].op == "broadcast"
    assert prediction.outcome.kind != "completes"


def test_accumulation_loop_of_a_given_length_ends_with_its_last_iteration(tmp_path: Path) -> None:
    body = """
micro_steps = 20
for step in range(2):
    for micro in range(micro_steps):
        model.require_backward_grad_sync = micro == micro_steps - 1
        model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    prediction = predicted(tmp_path, body)
    assert origins(prediction, 0).count("ddp-bucket") == 2  # one a step: only its last micro-batch reduces
    assert prediction.local_steps() == []


def _line(folder: Path, number: int) -> str:
    return (folder / "script.py").read_text().splitlines()[number - 1]


# ---- the run of the whole script, value by value

UNSYNCED_LAST = """
for epoch in range(2):
    for number in range(BATCHES):
        ends = (number + 1) % 2 == 0
        model.require_backward_grad_sync = ends
        model(torch.randn(8, 4)).mean().backward()
        if ends:
            optimizer.step()
    if rank == 0:
        with torch.no_grad():
            model(torch.ones(8, 4))
    dist.barrier()
"""


def lone(folder: Path, body: str, *, interpret: bool = True) -> list[Lone]:
    """What comes of the one forward of rank 0 alone."""
    script = folder / "script.py"
    script.write_text(HEAD + body)
    project = Project([script])
    program = lower(project, project.entries[0])
    job = Job(project, project.entries[0], limits=Bounds(ticks=5_000))
    exploration = explore(program, (lambda: proof.predicted(job)) if interpret else None)
    node = next(n for n in program.of(Forward) if "ones" in _line(folder, n.span.line))
    return lone_forward(exploration, node)


def test_a_whole_run_knows_that_the_last_forward_before_an_evaluation_was_not_synchronised(tmp_path: Path) -> None:
    odd = "import json\nBATCHES = len(json.dumps([1]))" + UNSYNCED_LAST  # three batches, which the lowering does not know
    (walked,) = lone(tmp_path, odd, interpret=False)
    assert walked.sent and not walked.goes_on
    (found,) = lone(tmp_path, "BATCHES = len([1, 2, 3])" + UNSYNCED_LAST)
    assert not found.sent and found.goes_on
    (synced,) = lone(tmp_path, "BATCHES = len([1, 2, 3, 4])" + UNSYNCED_LAST)
    assert synced.sent and not synced.goes_on


@pytest.mark.parametrize(
    "top",
    ["import sys\nBATCHES = len(sys.stdin.read())", "BATCHES = 100_000"],
    ids=["a length that nobody knows", "too long to follow"],
)
def test_a_run_that_was_cut_short_is_no_whole_one(tmp_path: Path, top: str) -> None:
    (found,) = lone(tmp_path, top + UNSYNCED_LAST)
    assert found.sent  # by the walk of the lowered tree
