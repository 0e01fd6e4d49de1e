"""The piece of the fuzz run: that of `--hypothesis-seed`, or else one that follows from the commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hypothesis
import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("hypothesis_seed", None) is not None:
        return
    here = Path(__file__).parent
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    piece = int(asked.stdout[:8], 16) if asked.returncode == 0 else 0
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == here and getattr(item.obj, "is_hypothesis_test", False):
            hypothesis.seed(piece)(item.obj)
