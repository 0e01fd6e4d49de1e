"""Runs one rule on a script and its files, as an audit does."""

from __future__ import annotations

import functools
from pathlib import Path

from ddp_audit.findings import Finding
from ddp_audit.launch.model import Launch
from ddp_audit.program import lower
from ddp_audit.rule import Context, Rule, load_rules
from ddp_audit.source.project import Project

HEAD = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset
"""


@functools.cache
def rules() -> dict[str, Rule]:
    """Every rule by its code."""
    return {rule.code: rule for rule in load_rules()}


def audited(folder: Path, text: str, files: dict[str, str] | None = None, launch: Launch | None = None) -> Context:
    """What a rule is given for `train.py` with this text, beside some other files. The working directory must be `folder`."""
    for name, content in {"train.py": text, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    project = Project(["train.py"])
    program = lower(project, project.entries[0])
    assert not project.errors and not program.limits, (project.errors, program.limits)
    return Context(program, launch)


def findings(code: str, context: Context, least: str = "likely") -> list[Finding]:
    """What one rule finds at a confidence that is shown by default."""
    shown = ("likely", "certain") if least == "likely" else ("possible", "likely", "certain")
    return [finding for finding in rules()[code].check(context) if finding.confidence in shown]
