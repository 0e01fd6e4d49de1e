"""What the tests of fixes share: a head for their programs, and the fixes of some rules applied to a text in the current folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddp_audit.audit import Options, audit
from ddp_audit.fix.rounds import FixResult, apply_fixes

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def mended(text: str, code: str, unsafe: bool = True) -> FixResult:
    Path("train.py").write_bytes(text.encode())
    options = Options(select=[code], min_confidence="possible")
    return apply_fixes(lambda overlay: audit(["train.py"], options, overlay=overlay), {}, unsafe)


def text_after(outcome: FixResult) -> str:
    (path,) = outcome.changed
    return outcome.after[path].decode()


def refusals(outcome: FixResult) -> Sequence[str]:
    return list(outcome.refused.values())
