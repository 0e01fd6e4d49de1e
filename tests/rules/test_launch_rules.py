"""DDP501, DDP503 and DDP507 on more shapes of their hazards and of what looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit
from ddp_audit.findings import Finding

HEAD = """\
import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
parser = argparse.ArgumentParser()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDP_AUDIT_DEBUG", "1")
    return tmp_path


def check(code: str, text: str, documents: dict[str, str] | None = None, **options: object) -> list[Finding]:
    for name, content in {"train.py": HEAD + text, **(documents or {})}.items():
        Path(name).write_text(content)
    result = audit(["train.py"], Options(select=[code], **options))  # type: ignore[arg-type]
    assert not result.errors
    return result.findings


USE = "args = parser.parse_args()\ndist.init_process_group('nccl')\ntorch.cuda.set_device({rank})\n"
RANK = 'parser.add_argument("--local_rank", type=int, default={})\n'

LEGACY = [
    # program, documents, severity or None, part of the message
    (RANK.format(0) + USE.format(rank="args.local_rank"), {}, "warning", "stays 0 in every process, so all ranks of a node use device 0"),
    (RANK.format(-1) + USE.format(rank="args.local_rank"), {}, "warning", "stays -1 in every process"),
    (RANK.format(None) + USE.format(rank="args.local_rank"), {}, "warning", "stays None in every process"),
    ('parser.add_argument("--local_rank", type=int, required=True)\n' + USE.format(rank="args.local_rank"), {}, "warning", "the parser ends"),
    (RANK.format(0) + USE.format(rank="vars(args)['local_rank']"), {}, "warning", "device 0"),
    (RANK.format(0) + USE.format(rank="args.local_rank"), {"run.sh": "torchrun --nproc_per_node=2 train.py\n"}, "warning", "run.sh:1 starts it by torchrun"),
    (RANK.format(0) + USE.format(rank="dist.get_rank()"), {}, "info", "nothing here reads it"),
    (RANK.format(0) + USE.format(rank="args.local_rank").replace("dist.init", "args.local_rank = dist.get_rank() % 8\ndist.init"), {}, "info", "sets the value itself"),
    (RANK.format("int(os.environ['LOCAL_RANK'])") + USE.format(rank="args.local_rank"), {}, None, ""),
    (RANK.format(0) + USE.format(rank="int(os.environ.get('LOCAL_RANK', args.local_rank))"), {}, None, ""),
    (RANK.format(0) + USE.format(rank="args.local_rank"), {"run.sh": "torchrun --nproc_per_node=2 train.py --local_rank=0\n"}, None, ""),
    ("import deepspeed\n" + RANK.format(0) + USE.format(rank="args.local_rank"), {}, None, ""),
    (RANK.format(0).replace('"--local_rank"', '"--local_rank", "--local-rank"') + USE.format(rank="args.local_rank"),
     {"run.sh": "python -m torch.distributed.launch --nproc_per_node=2 train.py\n"}, None, ""),
    (RANK.format(0) + USE.format(rank="args.local_rank"),
     {"run.sh": "python -m torch.distributed.launch --nproc_per_node=2 train.py\n"}, "warning", "torchrun passes no such argument"),
    ("parser.add_argument('--rank', type=int)\n" + USE.format(rank="int(os.environ['LOCAL_RANK'])"), {}, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("program", "documents", "severity", "part"), LEGACY)
def test_legacy_local_rank_argument(program: str, documents: dict[str, str], severity: str | None, part: str) -> None:
    found = check("DDP507", program, documents)
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert all(part in finding.message for finding in found)
