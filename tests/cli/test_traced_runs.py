"""`trace` and `diff` from the command line, on real runs of two CPU ranks."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.traced

pytest.importorskip("torch")

SCRIPT = """\
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import torch.distributed.nn  # before the group, or gloo's threads may abort the process at exit
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4, generator=generator)).sum().backward()
    optimizer.step()
print("trained", flush=True)
BARRIER
dist.all_reduce(torch.ones(1))
del model  # before the group, or the end may hang: gloo's thread and the interpreter wait for each other
dist.destroy_process_group()
"""
GUARDED = """\
if dist.get_rank() == 0:
    dist.barrier()
"""
SLOW = """\
if dist.get_rank() == 1:
    import time
    time.sleep(5)
"""


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    line = [sys.executable, "-m", "ddp_audit", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


TORCHRUN = ("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")


def test_ranks_that_part(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("BARRIER\n", GUARDED))
    done = command(tmp_path, "trace", "--format", "json", "--on-stall", "kill", "--stall-after", "3", *TORCHRUN)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)  # and nothing of the command's own output in it
    assert document["verdict"] == "diverged"
    divergence = document["divergences"][0]
    assert divergence["ranks"]["0"]["op"] == "barrier"
    assert divergence["ranks"]["0"]["site"] == "train.py:17"
    assert divergence["ranks"]["1"]["op"] == "all_reduce"
    assert divergence["ranks"]["1"]["site"] == "train.py:18"
    assert "trained" in done.stderr
    assert "train.py:17" in done.stderr  # the diff, told while the command ran
    assert "Traceback" not in done.stderr

    again = command(tmp_path, "diff", "ddp-trace", "--format", "json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["divergences"] == document["divergences"]

    text = command(tmp_path, "diff", "ddp-trace").stdout
    assert "diverged" in text
    assert "train.py:17" in text


def test_ranks_that_agree(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("BARRIER\n", SLOW))
    done = command(tmp_path, "trace", "--dir", "kept", "--stall-after", "1", *TORCHRUN)
    assert done.returncode == 0, done.stdout + done.stderr
    waits = done.stdout.partition("Ranks wait for rank 1, which is alive and in no collective")[2]
    assert "Rank 1: is at train.py:18" in waits and "The ranks go on: rank 1 was slow, not hung." in waits
    assert "audit of train.py" in done.stdout
    assert "The 2 ranks agree" in done.stdout
    assert (tmp_path / "kept" / "rank-00001.ddptrace").is_file()
    checked = command(tmp_path, "train.py", "--trace", "kept", "--format", "json", "--min-confidence", "possible")
    assert all("verdict" in finding for finding in json.loads(checked.stdout)["findings"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["trace"], 2, "COMMAND"),
        (["trace", "--stall-after", "soon", "--", "torchrun"], 2, "soon"),
        (["trace", "--no-check", "--", "no-such-program-at-all"], 2, "command not found"),
        (["trace", "--", sys.executable, "fails.py"], 2, "no trace recorded: the command exited with 3 before any process called"),
        (["trace", "--", sys.executable, "does_nothing.py"], 2, "exited with 0, and no process of it called init_process_group()"),
        (["diff", "nowhere"], 2, "nowhere: no such folder"),
        (["diff", "."], 2, "no trace"),
        (["demo", "rank0-eval-bariere"], 2, "did you mean rank0-eval-barrier?"),
    ],
)
def test_what_cannot_be_done(tmp_path: Path, words: list[str], code: int, says: str) -> None:
    (tmp_path / "fails.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "does_nothing.py").write_text("a = 1\n")
    done = command(tmp_path, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_without_a_trace_is_a_document_too(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import sys\nsys.exit(3)\n")
    done = command(tmp_path, "trace", "--format", "json", "--", sys.executable, "fails.py")
    assert done.returncode == 2, done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["command_code"]) == (None, 3)
    assert "exited with 3" in document["error"]
    later = command(tmp_path, "diff", "ddp-trace")
    assert (later.returncode, later.stdout) == (2, "")
    assert "no trace recorded: the command exited with 3 before any process called init_process_group()" in later.stderr


def test_a_launch_that_fails_before_torch_is_imported_has_no_trace(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import no_such_module_at_all\nimport torch\n")
    done = command(tmp_path, "trace", *TORCHRUN)
    assert done.returncode == 2, done.stderr
    assert "no trace recorded: the command exited with 1 before any process called init_process_group()" in done.stdout


FAILING = """\
if dist.get_rank() == 1:
    raise RuntimeError("boom")
"""


def test_a_rank_that_fails_is_named_with_the_line_that_raised(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("BARRIER\n", FAILING))
    done = command(tmp_path, "trace", "--stall-after", "0", *TORCHRUN)
    assert done.returncode == 1, done.stderr
    said = " ".join(done.stdout.split())
    assert "Rank 1 failed: RuntimeError: boom (train.py:17); rank 0 was left waiting." in said
    assert "The 2 ranks diverged" not in said
    assert "Rank 1: ended with RuntimeError: boom at train.py:17, after" in said
    assert "rank 0 at train.py:18; rank 1 ended with RuntimeError: boom at train.py:17." in said  # what the log says
    state = json.loads(command(tmp_path, "diff", "ddp-trace", "--format", "json").stdout)["ranks"]["1"]
    assert (state["error"], state["raised_at"]) == ("RuntimeError: boom", "train.py:17")


def test_the_demo_lists_its_hazards(tmp_path: Path) -> None:
    done = command(tmp_path, "demo", "--list")
    assert done.returncode == 0
    assert "rank0-eval-barrier" in done.stdout


def test_the_demo_keeps_its_promise(tmp_path: Path) -> None:
    done = command(tmp_path, "demo", "--dir", "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert told.index("error DDP401 rank0-forward-through-wrapper") < told.index("different operations") < told.index("CONFIRMED")
    assert "ddp-audit preflight -- torchrun" in done.stdout.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "kept" / "run.json").is_file()


ATTENTION = """\
import os
import pickle
import pickle

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP

vocabulary = 50304
if os.path.exists("data/meta.pkl"):
    with open("data/meta.pkl", "rb") as file:
        vocabulary = pickle.load(file)["vocab_size"]


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, 4)
        self.flash = hasattr(functional, "scaled_dot_product_attention")
        if not self.flash:
            self.register_buffer("bias", torch.ones(4, 4).tril())

    def forward(self, x):
        x = self.tokens(x)
        return functional.scaled_dot_product_attention(x, x, x) if self.flash else x @ self.bias


dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(Attention())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    if step == 1 and dist.get_rank() == 0:
        with torch.no_grad():
            print(model(torch.zeros(2, 4, dtype=torch.long)).mean().item(), flush=True)
    optimizer.zero_grad()
    model(torch.randint(7, (2, 4))).square().mean().backward()
    optimizer.step()
END
dist.destroy_process_group()
"""


def test_the_torch_and_the_files_of_the_machine_are_those_of_the_prediction(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ATTENTION.replace("END\n", ""))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65, "itos": {1: "a"}}))
    done = command(tmp_path, "trace", "--format", "json", *TORCHRUN)
    assert done.returncode == 0, done.stdout + done.stderr
    prediction = json.loads(done.stdout)["prediction"]
    assert prediction["result"] == "agreed-to-end" and prediction["compared"] == {"0": 8, "1": 8}
    assert f"{65 * 4}" in json.dumps(prediction["sequences"])


def test_a_run_that_failed_in_a_line_has_covered_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(
        ATTENTION.replace("END\n", 'os.mkdir("out")\ntorch.save(model.module.state_dict(), "last.pt")\n')
    )
    done = command(tmp_path, "trace", "--format", "json", *TORCHRUN)
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = {(f["code"], f["line"]): f["verdict"] for f in json.loads(done.stdout)["findings"] if f["code"] == "DDP701"}
    line = 1 + ATTENTION[: ATTENTION.index("END\n")].count("\n")
    assert verdicts == {("DDP701", line): "not-exercised", ("DDP701", line + 1): "not-covered"}
