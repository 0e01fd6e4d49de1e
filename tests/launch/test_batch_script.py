"""`ddp-audit batch` with a script: numbers and their origins, the jobs before and after, every way in which code divides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.cli import main

HEAD = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""
GLOBAL = (
    '"""Trains.\n\ntorchrun --nproc_per_node=4 fit.py\ntorchrun --nproc_per_node=2 fit.py big.py\n"""\n'
    + HEAD
    + """\
accum_steps = 40
batch_size = 12
block_size = 1024
exec(open("override.py").read())
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
torch.manual_seed(7 + dist.get_rank())
assert accum_steps % world == 0
accum_steps //= world
data = torch.arange(9000)
model = DDP(torch.nn.Linear(block_size, 1))
for micro in range(accum_steps):
    ix = torch.randint(len(data) - block_size, (batch_size,))
    model(data[ix]).mean().backward()
"""
)
PARSED = (
    HEAD
    + """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--grad_accum", type=int, default=2)
parser.add_argument("--total", dest="total_batch_size", type=int, default=65536)
args = parser.parse_args()
dist.init_process_group("gloo")
T = 1024
"""
)
PER_PROCESS = PARSED + "for micro in range(args.grad_accum):\n    pass\n"
TOTAL = PARSED.replace("--grad_accum", "--grad_clip") + (
    "per_pass = args.batch_size * T * dist.get_world_size()\n"
    "assert args.total_batch_size % per_pass == 0\ngrad_accum_steps = args.total_batch_size // per_pass\n"
)
ROUNDED = (
    PARSED.replace("--grad_accum", "--grad_clip")
    + "grad_accum_steps = args.total_batch_size // (args.batch_size * T * dist.get_world_size())\n"
)
SPLIT = HEAD + (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--global-batch-size', type=int, default=256)\n"
    "args = parser.parse_args()\ndist.init_process_group('gloo')\n"
    "assert args.global_batch_size % dist.get_world_size() == 0\nlocal = int(args.global_batch_size // dist.get_world_size())\n"
)
FIXED = HEAD + (
    "num_devices = 8\nglobal_batch_size = 512\nmicro_batch_size = 8\nbatch_size = global_batch_size // num_devices\n"
    "accum_steps = batch_size // micro_batch_size\ndist.init_process_group('gloo')\n"
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDP_AUDIT_DEBUG", "1")

    def ask(text: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / "fit.py").write_text(text)
        (tmp_path / "override.py").write_text("")
        code = main(["batch", "fit.py", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return ask


def answer(run: Run, text: str, *words: str) -> dict[str, Any]:
    code, out, err = run(text, *words, "--format", "json")
    assert code == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_the_exercise(run: Run) -> None:
    Path("gpt.py").write_text("batch_size = 12\nblock_size = 1024\naccum_steps = 5 * 8\n")
    code, out, _ = run(GLOBAL, "--config-file", "gpt.py", "--from", "8", "--to", "16")
    assert code == 0
    assert "accum_steps = 40 (gpt.py:3, given by --config-file)" in out and "batch_size = 12 (gpt.py:1, given by" in out
    assert "on 8 processes: a = 5, K = W x a x B x T = 8 x 5 x 12 x 1,024 = 491,520" in out
    assert "40 / 16 is not whole" in out and "fit.py:17 stops every process" in out
    assert "A = 80 with B = 6 keeps the 491,520 tokens at a = 5" in out
    assert "A = 48: a = 3, K = 589,824 (+20.0%" in out and "A = 32: a = 2, K = 393,216 (-20.0%" in out
    assert "random batches change with W even where K does not" in out and "fit.py:22" in out and "fit.py:16" in out
    rows = [line.split() for line in out.splitlines() if "491,520" in line]
    assert ["6", "80", "5", "491,520", "*", "="] in rows and ["15", "32", "2", "491,520"] in rows


def test_the_exercise_as_json(run: Run) -> None:
    found = answer(run, GLOBAL, "--from", "8", "--to", "16")
    assert (found["world_size"], found["block_size"], found["tokens_per_update"]) == (16, 1024, 491520)
    assert found["current"] == {"B": 12, "A": 40, "a": None, "holds": False, "reason": "40 is not divisible by 16"}
    assert {"B": 6, "A": 80, "a": 5, "tokens_per_update": 491520, "exact": True} in found["options"]
    assert found["before"] == {"world_size": 8, "a": 5, "tokens_per_update": 491520, "reason": None}
    assert [(one["A"], one["tokens_per_update"]) for one in found["instead"]] == [(32, 393216), (48, 589824)]
    assert {"name": "block_size", "value": 1024, "where": "fit.py:12, default"} in found["numbers"]


def test_without_a_number_of_processes_the_documented_launches_are_listed(run: Run) -> None:
    Path("big.py").write_text("accum_steps = 8\n")
    found = answer(run, GLOBAL)
    assert [(row["where"], row["world_size"], row["tokens_per_update"]) for row in found["launches"]] == [
        ("fit.py:3", 4, 491520),
        ("fit.py:4", 2, 98304),
    ]
    assert found["differ"] is True
    _, out, _ = run(GLOBAL)
    assert "K differs between these launches: fit.py:3 has 491,520, fit.py:4 has 98,304." in out
    assert "accum_steps = 8 (big.py:1)" in out and "nproc_per_node: --nproc_per_node=2" in out


KINDS = [
    # script, words, a, K, part of the meaning
    (GLOBAL, ("--to", "8"), 5, 491520, "A is global: fit.py:18 divides accum_steps"),
    (PER_PROCESS, ("--to", "8"), 2, 65536, "grad_accum is already per process"),
    (TOTAL, ("--to", "8"), 2, 65536, "K is given: fit.py:15 divides total_batch_size by B, T"),
    (SPLIT, ("--to", "8"), 1, 256, "the batch is global: fit.py:11 divides global_batch_size"),
    (FIXED, ("--to", "16"), 8, 1024, "a is fixed: fit.py:9 computes it from num_devices = 8"),
]


@pytest.mark.parametrize(("text", "words", "a", "tokens", "part"), KINDS)
def test_what_the_code_does_with_the_number(run: Run, text: str, words: tuple[str, ...], a: int, tokens: int, part: str) -> None:
    launch = answer(run, text, *words)["launch"]
    assert (launch["a"], launch["tokens_per_update"], launch["holds"]) == (a, tokens, True)
    assert part in launch["meaning"]


def test_a_count_per_process_makes_more_of_more_processes(run: Run) -> None:
    found = answer(run, PER_PROCESS, "--from", "8", "--to", "16")
    assert found["tokens_per_update"] == 65536 and found["current"]["holds"] is False
    assert {"B": 4, "A": 16, "a": 1, "tokens_per_update": 65536, "exact": True} in found["options"]
    assert any("K goes from 65,536 to 131,072 tokens (2 times)" in note for note in found["notes"])


def test_a_count_that_is_rounded_in_silence(run: Run) -> None:
    _, out, _ = run(ROUNDED, "--to", "3")
    assert "65,536 / 12,288 is not whole" in out and "rounds it down in silence to a = 5 to K = 61,440" in out
    _, out, _ = run(TOTAL, "--to", "3")
    assert "fit.py:14 stops every process" in out and "in silence" not in out


def test_a_script_without_accumulation_is_offered_none(run: Run) -> None:
    found = answer(run, SPLIT, "--to", "16")
    assert found["options"] == [{"B": 16, "A": 16, "a": 1, "tokens_per_update": 256, "exact": True}]
    found = answer(run, SPLIT, "--to", "3")
    assert found["current"]["reason"] == "256 is not divisible by 3"
    assert [(one["B"], one["tokens_per_update"], one["exact"]) for one in found["options"]] == [(85, 255, False), (86, 258, False)]


def test_the_launch_sets_values(run: Run) -> None:
    found = answer(run, TOTAL, "--launch", "torchrun --nnodes=2 --nproc_per_node=4 fit.py --batch_size 8 --total=131072")
    assert (found["world_size"], found["launch"]["a"], found["tokens_per_update"]) == (8, 2, 131072)
    where = {one["name"]: one["where"] for one in found["numbers"]}
    assert where["batch_size"] == "--batch_size 8 of the named launch"
    assert found["launch"]["world_from"]["nnodes"] == "--nnodes=2"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "train:\n  accum_steps: 8\n"),
        ("c.json", '{"accum_steps": 8}'),
        ("c.toml", "[train]\naccum_steps = 8\n"),
        ("c.py", "accum_steps = 8\n"),
    ],
)
def test_config_files_of_every_kind(run: Run, name: str, text: str) -> None:
    Path(name).write_text(text)
    found = answer(run, GLOBAL, "--launch", f"torchrun --nproc_per_node=4 fit.py --config {name}")
    assert found["launch"]["a"] == 2 and found["numbers"][0]["where"].startswith(name)


def test_a_launch_in_a_script_of_its_own(run: Run) -> None:
    Path("job.slurm").write_text("#SBATCH --nodes=2\nsrun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 fit.py\n")
    assert answer(run, GLOBAL, "--launch", "sbatch job.slurm")["world_size"] == 8


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--launch", "torchrun --nproc_per_node=$N fit.py"), "nproc_per_node=$N"),
        (("--launch", "torchrun --nnodes=1:4 --nproc_per_node=8 fit.py"), "nnodes=1:4"),
        (("--launch", "torchrun --nproc_per_node=gpu fit.py"), "nproc_per_node=gpu"),
        (("--launch", "torchrun --nproc_per_node=2 other.py"), "starts other.py"),
        (("--launch", "torchrun --nproc_per_node=2 fit.py gone.py"), "gone.py of the launch is not there"),
        (("--from", "8"), "--from needs"),
        (("--to", "8", "--config-file", "gone.py"), "gone.py"),
        (("--to", "8", "--set", "nonsense"), "NAME=VALUE"),
        (("--to", "8", "--set", "accum_steps=0"), "accum_steps is 0, and an update needs at least one micro-batch"),
        (("--to", "8", "--set", "accum_steps=many"), "does not say how many micro-batches"),
    ],
)
def test_questions_without_an_answer(run: Run, words: tuple[str, ...], part: str) -> None:
    code, out, err = run(GLOBAL, *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and part in err


@pytest.mark.parametrize("path", ["gone.py", ".", "broken.py"])
def test_scripts_that_cannot_be_read(run: Run, capsys: pytest.CaptureFixture[str], path: str) -> None:
    Path("broken.py").write_text("a = (\n")
    assert main(["batch", path, "--to", "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_unequal_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "--rank-tokens", "30,10", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Means of 1 and 0 in the two processes: the mean of means is 0.5, that of all tokens 0.75.
    assert found["rank_tokens"] == {"counts": [30, 10], "mean": 20.0, "weights": [1.5, 0.5], "shift": 0.25}
    assert main(["batch", "--rank-tokens", "10:30", "--world-size", "2"]) == 0
    out = capsys.readouterr().out
    assert "up to 25.0% of their spread" in out and "n = 30: 1.5" in out
    assert main(["batch", "--rank-tokens", "7,7"]) == 0
    assert "is the mean of all tokens" in capsys.readouterr().out
    assert main(["batch", "--rank-tokens", "10:30"]) == 2
    assert main(["batch", "--rank-tokens", "10,20,30", "--world-size", "2"]) == 2
    assert main(["batch", "--rank-tokens", "many"]) == 2


FOLLOWING = HEAD + (
    "import math\nfrom torch.utils.data import DataLoader, DistributedSampler, TensorDataset\nbatch_size = 100\nbase_lr = 0.1\n"
    "dist.init_process_group('gloo')\nworld = dist.get_world_size()\nbatch_size = int(batch_size / world)\nworkers = 10 // world\n"
    "data = TensorDataset(torch.zeros(64, 4))\nsampler = DistributedSampler(data, drop_last=True)\n"
    "optimizer = torch.optim.SGD(DDP(torch.nn.Linear(4, 1)).parameters(), lr=base_lr * world)\n"
    "sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000 // world)\n"
)


def test_what_else_follows_the_number_of_processes(run: Run) -> None:
    found = answer(run, FOLLOWING, "--to", "4")
    assert found["launch"]["meaning"] == "the batch is global: fit.py:11 divides batch_size by the number of processes"
    assert (found["launch"]["B"], found["tokens_per_update"]) == (25, 100)
    assert found["quantities"] == [
        "workers = 10 // 4 = 2, and 2 of 10 are left over (fit.py:12)",
        "1000 // world = 1,000 // 4 = 250 (fit.py:16)",
        "learning rate = 0.4, from base_lr * world (fit.py:15)",
        "T_max of the schedule = 250, from 1000 // world (fit.py:16)",
        "each process has floor(n / 4) of n samples, up to 3 left out (fit.py:14)",
    ]


def test_a_division_that_cannot_be_followed_is_not_taken_for_none(run: Run) -> None:
    text = PER_PROCESS.replace("for micro", "args.grad_accum /= num_gpus\nfor micro")
    code, _, err = run(text, "--to", "8")
    assert code == 2 and "does not say how many micro-batches" in err


LOADED = HEAD + (
    "import yaml\nimport argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--config')\n"
    "cfg = yaml.safe_load(open(parser.parse_args().config))\ndist.init_process_group('gloo')\n"
    "accum = {how} // dist.get_world_size()\n"
)


@pytest.mark.parametrize("how", ["cfg['train']['accum_steps']", "cfg.train.accum_steps"])
def test_a_configuration_that_the_script_loads(run: Run, how: str) -> None:
    Path("c.yaml").write_text("train:\n  accum_steps: 40\n  batch_size: 12\nseq_len: 1024\n")
    found = answer(run, LOADED.format(how=how), "--launch", "torchrun --nproc_per_node=8 fit.py --config c.yaml")
    assert (found["launch"]["a"], found["tokens_per_update"]) == (5, 491520)
    assert {"name": "batch_size", "value": 12, "where": "c.yaml:3"} in found["numbers"]


def test_a_plain_command_of_a_script_that_spawns(run: Run) -> None:
    text = HEAD + (
        "import torch.multiprocessing as mp\nbatch_size = 32\ndef work(rank, world):\n"
        "    dist.init_process_group('gloo', rank=rank, world_size=world)\n    own = batch_size // dist.get_world_size()\n"
        "if __name__ == '__main__':\n    mp.spawn(work, args=(4,), nprocs=4)\n"
    )
    found = answer(run, text, "--launch", "python fit.py")
    assert (found["world_size"], found["launch"]["B"]) == (4, 8)
    assert [row["world_size"] for row in answer(run, text)["launches"]] == [4]
