"""Scripts that set MASTER_ADDR to their own machine, beside launches on one node and on several (DDP504)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

PROGRAM = """\
import os
import torch
import torch.distributed as dist
{setting}
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.destroy_process_group()
"""
TWO = "torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_id=a --rdzv_endpoint=first:29500 train.py"
ONE = "torchrun --nproc_per_node=2 train.py"
OWN = {
    "localhost": 'os.environ["MASTER_ADDR"] = "localhost"',
    "a number": 'os.environ["MASTER_ADDR"] = "127.0.0.1"',
    "another number of it": 'os.environ["MASTER_ADDR"] = "127.0.1.1"',
    "of the new protocol": 'os.environ["MASTER_ADDR"] = "::1"',
    "by a name": 'HOST = "localhost"\nos.environ["MASTER_ADDR"] = HOST',
    "in a function": 'def setup():\n    os.environ["MASTER_ADDR"] = "localhost"\nsetup()',
}
OTHERS = {
    "as a default": 'os.environ.setdefault("MASTER_ADDR", "localhost")',
    "where there is none": 'if "MASTER_ADDR" not in os.environ:\n    os.environ["MASTER_ADDR"] = "localhost"',
    "what the environment says": 'os.environ["MASTER_ADDR"] = os.environ.get("MASTER_ADDR", "localhost")',
    "another host": 'os.environ["MASTER_ADDR"] = "first"',
    "the port": 'os.environ["MASTER_PORT"] = "29500"',
}


def _found(folder: Path, setting: str, launch: str) -> list[str]:
    (folder / "train.py").write_text(PROGRAM.format(setting=setting), encoding="utf-8")
    (folder / "README.md").write_text(f"# Training\n\n```bash\n{launch}\n```\n", encoding="utf-8")
    report = audit([str(folder / "train.py")], Options())
    return [one.message for one in report.findings if one.code == "DDP504" and "MASTER_ADDR" in one.message]


@pytest.mark.parametrize("setting", OWN.values(), ids=OWN)
def test_an_address_of_each_node_itself(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (message,) = _found(tmp_path, setting, TWO)
    assert "on 2 nodes" in message
    assert not _found(tmp_path, setting, ONE)
    assert not _found(tmp_path, setting, TWO.replace("train.py", "other.py"))


@pytest.mark.parametrize("setting", OTHERS.values(), ids=OTHERS)
def test_an_address_that_others_can_find(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not _found(tmp_path, setting, TWO)
