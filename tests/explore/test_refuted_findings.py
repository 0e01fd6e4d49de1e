"""What a run that was followed to its end refutes: findings that ranks part, and steps on gradients that are averaged later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_audit.audit import audit
from ddp_audit.cli import main
from ddp_audit.outcome import Options

HEAD = """\
import os
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
"""


def levels(folder: Path, text: str, code: str, **options: object) -> list[str]:
    """The confidence of each finding with this code."""
    (folder / "train.py").write_text(HEAD + text)
    options = {"min_confidence": "possible", **options}
    result = audit([folder / "train.py"], Options(**options))  # type: ignore[arg-type]
    assert not result.errors
    return [finding.confidence for finding in result.findings if finding.code == code]


AFTER_THE_LAST = [
    "for i in range(4):\n    step()\n    if i == 3 and rank == 0:\n        raise SystemExit(0)\n",
    "for i in range(4):\n    step()\n    if i == 3 and rank == 0:\n        sys.exit()\n",
    "for i in range(4):\n    step()\n    if i >= 3:\n        if rank:\n            break\n",
    "def train():\n    for i in range(4):\n        step()\n        if i + 1 == 4 and rank != 0:\n            return\ntrain()\n",
    "done = 0\nwhile done < 3:\n    step()\n    done += 1\n    if done == 3 and os.environ['RANK'] == '1':\n        break\n",
]


@pytest.mark.parametrize("text", AFTER_THE_LAST)
def test_an_exit_after_the_last_step_is_at_most_possible(tmp_path: Path, text: str) -> None:
    assert set(levels(tmp_path, text, "DDP203")) <= {"possible"}


@pytest.mark.parametrize("text", AFTER_THE_LAST[:4])
def test_the_same_exit_one_step_earlier_is_found(tmp_path: Path, text: str) -> None:
    assert "likely" in levels(tmp_path, text.replace("range(4)", "range(5)"), "DDP203")


def test_other_rules_need_not_run_for_it(tmp_path: Path) -> None:
    assert levels(tmp_path, AFTER_THE_LAST[0], "DDP203", select=("DDP203",)) == ["possible"]


def test_what_the_run_rests_on_leaves_the_finding(tmp_path: Path) -> None:
    text = "import unknown_library\nsteps = unknown_library.steps()\nfor i in range(steps):\n    step()\n"
    assert "likely" in levels(tmp_path, text + "    if i == 2 and rank == 0:\n        break\n", "DDP203")


def test_more_ranks_than_two_may_part(tmp_path: Path) -> None:
    text = "step()\nif rank == 0:\n    dist.barrier()\nelif rank == 1:\n    dist.barrier()\n"
    assert "possible" not in levels(tmp_path, text, "DDP201", world_size=4)
    assert "possible" not in levels(tmp_path, text, "DDP201")


def test_the_explained_run_has_no_finding_against_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(HEAD + AFTER_THE_LAST[0])
    assert main([str(tmp_path / "train.py"), "--explain-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"]["outcome"] == "completes" and document["run"]["beyond"] == []


LOCAL = """\
for i in range(9):
    with model.no_sync():
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
    if i % 3 == 2:
"""
AVERAGES = [
    "for p in model.parameters():\n    dist.all_reduce(p.data)\n    p.data /= 2\n",
    "with torch.no_grad():\n    for name, p in model.module.named_parameters():\n        dist.all_reduce(p)\n        p /= 2\n",
    "for value in model.state_dict().values():\n    dist.all_reduce(value)\n    value /= 2\n",
    "for group in optimizer.param_groups:\n    for p in group['params']:\n        dist.all_reduce(p.data)\n        p.data.div_(2)\n",
    "flat = torch.cat([p.data.view(-1) for p in model.parameters()])\ndist.all_reduce(flat)\n",
    "flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()\ndist.all_reduce(flat)\n",
]
MEASURES = [
    "total = loss.detach().clone()\ndist.all_reduce(total)\n",
    "count = torch.tensor(sum(p.numel() for p in model.parameters()))\ndist.all_reduce(count)\n",
    "dist.barrier()\n",
]


def _inside(text: str) -> str:
    return LOCAL + "".join(f"        {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("text", AVERAGES)
def test_parameters_that_are_averaged_by_hand_do_not_drift(tmp_path: Path, text: str) -> None:
    assert levels(tmp_path, _inside(text), "DDP105") == levels(tmp_path, _inside(text), "DDP118") == []


@pytest.mark.parametrize("text", MEASURES)
def test_a_measure_that_is_reduced_averages_no_parameters(tmp_path: Path, text: str) -> None:
    assert levels(tmp_path, _inside(text), "DDP105") == ["likely"]


def test_parameters_that_are_shared_before_the_steps_drift_after_them(tmp_path: Path) -> None:
    text = "for p in model.parameters():\n    dist.broadcast(p.data, 0)\n" + _inside("print(i)")
    assert levels(tmp_path, text, "DDP105") == ["likely"]


@pytest.mark.parametrize(
    "text",
    [
        _inside("print(i)"),
        "bn = DDP(torch.nn.BatchNorm1d(4))\nstep()\nif rank == 0:\n    with torch.no_grad():\n        bn(torch.randn(4, 4))\n"
        "bn(torch.randn(4, 4)).sum().backward()\n",
    ],
)
def test_what_a_run_shows_is_not_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "train.py").write_text(HEAD + text)
    main([str(tmp_path / "train.py"), "--explain-run", "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert [f for f in document["findings"] if f["severity"] != "info"] and document["run"]["beyond"] == []


FILLED = [
    ("seen = {}", "seen[i] = 1", "not seen"),
    ("seen = set()", "seen.add(i)", "len(seen) == 0"),
    ("seen = collections.deque(maxlen=2)", "seen.append(i)", "len(seen) < 1"),
]


@pytest.mark.parametrize(("made", "filled", "test"), FILLED)
def test_where_the_program_itself_lets_nobody_in_a_finding_is_at_most_possible(
    tmp_path: Path, made: str, filled: str, test: str
) -> None:
    text = f"import collections\n{made}\nfor i in range(4):\n    step()\n    {filled}\n"
    assert set(levels(tmp_path, text + f"if rank == 0 and {test}:\n    dist.barrier()\n", "DDP201")) <= {"possible"}
    assert levels(tmp_path, text + f"if rank == 0 and not ({test}):\n    dist.barrier()\n", "DDP201") == ["likely"]


@pytest.mark.parametrize("test", ["os.environ.get('SAVE')", "os.path.exists('last.pt')", "args.save"])
def test_what_a_setting_decides_is_not_refuted_by_a_run_without_it(tmp_path: Path, test: str) -> None:
    options = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--save', action='store_true')\nargs = p.parse_args()\n"
    )
    text = f"{options}for i in range(4):\n    step()\nif rank == 0 and {test}:\n    dist.barrier()\n"
    assert levels(tmp_path, text, "DDP201") == ["likely"]
