"""`check --explain-run`, and the prediction that `trace` and `diff` tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.cli import main

pytestmark = pytest.mark.traced

SCRIPT = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=4)
args = parser.parse_args()
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(args.width, args.width))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    model(torch.randn(2, args.width)).sum().backward()
    optimizer.step()
del model  # before the group, or the end may hang: gloo's thread and the interpreter wait for each other
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def test_text(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "train.py", "--explain-run", "--format", "text"]) == 0
    out = capsys.readouterr().out
    assert "Predicted run of train.py on 2 ranks" in out
    assert "all_reduce of 20 float32 (DDP bucket all-reduce)" in out
    assert out.count("step at train.py:16: averaged") == 8
    assert "The run completes." in out
    assert max(map(len, out[out.index("Predicted run") :].splitlines())) <= 80


GROUPS = """\
import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
dist.init_process_group("gloo")
rank = dist.get_rank()
alone = dist.new_group([0])
total = torch.ones(3)
if rank == 0:
    dist.all_reduce(total, group=alone)
    dist.send(total, 1)
else:
    dist.recv(total, 0)
dist.barrier()
"""


def test_what_one_rank_does_by_itself_shifts_nothing_of_the_others(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(GROUPS)
    assert main(["check", "train.py", "--explain-run", "--format", "text", "--select", "DDP201"]) == 0
    table = capsys.readouterr().out.partition("Predicted run")[2]
    assert "The run completes." in table
    assert " ! " not in table and " x " not in table
    rows = [line.split() for line in table.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[1] for row in rows] == ["all_reduce", "send", "-", "barrier"]


def test_json_with_the_options_of_a_launch(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = "torchrun --nproc-per-node 3 train.py --width 6"
    assert main(["check", "train.py", "--explain-run", "--format", "json", "--launch", launch]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["world_size"] == 3
    assert set(run["ranks"]) == {"0", "1", "2"}
    buckets = [e for e in run["ranks"]["2"] if e["origin"] == "ddp-bucket"]
    assert [(e["op"], e["numel"], e["dtype"], e["reduce_op"], e["site"]) for e in buckets[:1]] == [
        ("all_reduce", 42, "float32", "sum", "train.py:15")
    ]


def test_without_the_option_there_is_no_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "train.py", "--format", "json"]) == 0
    assert "run" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train.py", "other.py"], "the run of one script"),
        (["train.py", "--format", "sarif"], "formats full, text and json"),
        (["train.py", "--diff"], "does not go with --diff"),
    ],
)
def test_what_it_does_not_go_with(script: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    (script.parent / "other.py").write_text(SCRIPT)
    assert main(["check", *words, "--explain-run"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1


def test_a_script_that_is_not_there_or_does_not_parse(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script.parent / "broken.py").write_text("import torch.distributed as dist\nfor\n")
    for name in ("broken.py", "absent.py"):
        assert main(["check", name, "--explain-run", "--format", "text"]) == 2
        told = capsys.readouterr()
        assert "Predicted run" not in told.out
        assert "Traceback" not in told.err


def test_trace_and_diff_tell_whether_the_prediction_holds(script: Path) -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "--width", "5"]
    words = [sys.executable, "-m", "ddp_audit", "trace", "--prediction", "full", "--", *launch]
    done = subprocess.run(words, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Prediction and trace agree to the end: 13 collectives of each rank, then exit." in done.stdout
    assert "    0 =  all_gather i64[1]  constructor :11 | all_gather i64[1]  constructor :11" in done.stdout
    assert "   12 =  " in done.stdout
    words = [sys.executable, "-m", "ddp_audit", "diff", "ddp-trace", "--format", "json"]
    told = subprocess.run(words, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=100)
    prediction = json.loads(told.stdout)["prediction"]
    (both,) = prediction.pop("sequences")
    compared = {"0": 13, "1": 13}
    assert prediction == {
        "result": "agreed-to-end",
        "agrees": True,
        "compared": compared,
        "why": None,
        "kind": None,
        "difference": None,
        "assumed": [],
    }
    assert both["ranks"] == [0, 1]
    assert sum(block["times"] * len(block["rows"]) for block in both["blocks"]) == 13
    assert all(row["agrees"] and row["recorded"]["op"] for block in both["blocks"] for row in block["rows"])
