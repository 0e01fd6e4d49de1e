"""Small scripts on disk, lowered as an audit lowers them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.program import lower
from ddp_audit.program.model import Program
from ddp_audit.source.project import Project

Lowered = Callable[..., Program]

HEAD = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
"""


@pytest.fixture
def lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lowered:
    """A function that writes `train.py` (with the usual imports before `text`) and other files, and lowers it."""
    monkeypatch.chdir(tmp_path)

    def lower_text(text: str, files: dict[str, str] | None = None, head: str = HEAD, **options: Any) -> Program:
        for name, content in {"train.py": head + text, **(files or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        project = Project(["train.py"])
        assert not project.errors, project.errors
        program = lower(project, project.entries[0], **options)
        assert not program.limits, program.limits
        return program

    return lower_text
