"""A check that the world size divides the accumulation count, in every form: judged alike, and read by `batch`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit
from ddp_audit.cli import main

HEAD = """\
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
batch_size = 12
block_size = 1024
gradient_accumulation_steps = 40
dist.init_process_group("gloo")
W = int(os.environ["WORLD_SIZE"])
"""
REST = """
model = DDP(torch.nn.Linear(4, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for it in range(5):
    for micro in range(gradient_accumulation_steps):
        (model(torch.randn(batch_size, 4)).pow(2).mean() / gradient_accumulation_steps).backward()
    opt.step(); opt.zero_grad()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.zeros(1))
dist.destroy_process_group()
"""
DIVIDES = "gradient_accumulation_steps //= W\n"
CHECKS = {
    "if and raise": f"if gradient_accumulation_steps % W != 0:\n    raise ValueError('x')\n{DIVIDES}",
    "if, print and raise": f"if gradient_accumulation_steps % W:\n    print('no')\n    raise SystemExit(1)\n{DIVIDES}",
    "if and sys.exit": f"if gradient_accumulation_steps % W != 0:\n    print('bad')\n    sys.exit(1)\n{DIVIDES}",
    "if not and exit": f"if not gradient_accumulation_steps % W == 0:\n    print('x')\n    exit(2)\n{DIVIDES}",
    "else": "if gradient_accumulation_steps % W == 0:\n    gradient_accumulation_steps //= W\nelse:\n    raise RuntimeError('x')\n",
    "helper that exits": f"def die(text):\n    print(text)\n    sys.exit(1)\nif gradient_accumulation_steps % W:\n    die('x')\n{DIVIDES}",
    "helper that checks": f"def check(a, w):\n    if a % w:\n        raise ValueError('x')\ncheck(gradient_accumulation_steps, W)\n{DIVIDES}",
    "remainder": f"rest = gradient_accumulation_steps % W\nif rest:\n    raise ValueError\n{DIVIDES}",
    "divmod": "gradient_accumulation_steps, rest = divmod(gradient_accumulation_steps, W)\nif rest != 0:\n    raise ValueError\n",
    "multiplied back": "a = gradient_accumulation_steps // W\nif a * W != gradient_accumulation_steps:\n    raise ValueError('x')\n"
    "gradient_accumulation_steps = a\n",
    "rounded": "a = gradient_accumulation_steps / W\nif a != int(a):\n    raise ValueError('x')\ngradient_accumulation_steps = int(a)\n",
    "is_integer": "a = gradient_accumulation_steps / W\nif not a.is_integer():\n    raise ValueError('x')\n"
    "gradient_accumulation_steps = int(a)\n",
    "and": f"if W > 1 and gradient_accumulation_steps % W != 0:\n    raise ValueError('x')\n{DIVIDES}",
    "rank 0 says it": f"if gradient_accumulation_steps % W:\n    if dist.get_rank() == 0:\n        print('x')\n"
    f"    dist.destroy_process_group()\n    sys.exit(1)\n{DIVIDES}",
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", CHECKS)
def test_a_check_that_is_no_assert_is_judged_as_one(form: str) -> None:
    Path("train.py").write_text(HEAD + CHECKS[form] + REST)
    found = audit(["train.py"], Options(world_size=16)).findings
    checks = [f for f in found if f.code == "DDP505"]
    assert [f.severity for f in checks] == ["error"] and not any("assert" in f.message + f.explanation for f in checks)
    assert "DDP201" in {f.code for f in found} and "DDP502" not in {f.code for f in found}
    held = {f.code for f in audit(["train.py"], Options(world_size=8)).findings}
    assert "DDP201" in held and not held & {"DDP502", "DDP505"}


@pytest.mark.parametrize("form", CHECKS)
@pytest.mark.parametrize(("world", "per_rank"), [(8, 5), (16, None)])
def test_batch_reads_a_check_that_is_no_assert(
    form: str, world: int, per_rank: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(HEAD + CHECKS[form] + REST)
    assert main(["batch", "train.py", "--world-size", str(world), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["tokens_per_update"] == 40 * 12 * 1024
    assert (answer["current"]["a"], answer["current"]["holds"]) == (per_rank, per_rank is not None)


def test_an_assert_is_called_one() -> None:
    Path("train.py").write_text(HEAD + "assert gradient_accumulation_steps % W == 0\n" + DIVIDES + REST)
    [check] = [f for f in audit(["train.py"], Options(world_size=16)).findings if f.code == "DDP505"]
    assert "Under python -O an assert is not evaluated" in check.explanation


@pytest.mark.parametrize("text", ["", "if W % 2:\n    raise ValueError\n"], ids=["none", "of W"])
def test_a_check_of_something_else_leaves_the_division_unchecked(text: str) -> None:
    Path("train.py").write_text(HEAD + text + DIVIDES + REST)
    assert "DDP502" in {f.code for f in audit(["train.py"], Options(world_size=16)).findings}


DEALT = {
    "added": "a = gradient_accumulation_steps // W + (rank < gradient_accumulation_steps % W)\n",
    "ternary": "a = gradient_accumulation_steps // W + (1 if rank < gradient_accumulation_steps % W else 0)\n",
    "if": "rest = gradient_accumulation_steps % W\na = gradient_accumulation_steps // W\nif rank < rest:\n    a += 1\n",
    "divmod": "a, rest = divmod(gradient_accumulation_steps, W)\na += int(rank < rest)\n",
    "to the last": "a = gradient_accumulation_steps // W\nif rank == W - 1:\n    a += gradient_accumulation_steps % W\n",
}
OF_EACH = REST.replace("range(gradient_accumulation_steps)", "range(a)").replace(
    "range(a):\n", "range(a):\n        model.require_backward_grad_sync = micro == a - 1\n"
)


@pytest.mark.parametrize("form", DEALT)
def test_a_remainder_that_is_dealt_out_makes_the_ranks_weigh_differently(form: str) -> None:
    text = HEAD + "rank = dist.get_rank()\n" + DEALT[form] + OF_EACH
    Path("train.py").write_text(text.replace("/ gradient_accumulation_steps)", "/ a)"))
    [finding] = [f for f in audit(["train.py"], Options()).findings if f.code == "DDP502"]
    assert "on 3 processes some ranks do" in finding.message and "are done" not in finding.message
    assert finding.severity == "warning"
    Path("train.py").write_text(text.replace("/ gradient_accumulation_steps)", "/ (gradient_accumulation_steps / W))"))
    assert "DDP502" not in {f.code for f in audit(["train.py"], Options()).findings}
    Path("train.py").write_text(text)
    assert "DDP502" not in {f.code for f in audit(["train.py"], Options(world_size=8)).findings}
