"""Each variation of the documentation's example brings what is right to say of it, and nothing else."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from more_variations import MORE_VARIATIONS
from variations import VARIATIONS, Variation

from ddp_audit.audit import Options, audit

EXAMPLE = Path(__file__).parents[2] / "docs" / "example" / "gpt"


def _said(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> list[tuple[str, int]]:
    """The errors and warnings in the script, by code and line."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    Path("train.py").write_text(text)
    result = audit(["train.py"], Options())
    assert not result.errors
    return [(f.code, f.span.line) for f in result.findings if f.severity != "info" and f.span.path == "train.py"]


@pytest.mark.parametrize("variation", [*VARIATIONS, *MORE_VARIATIONS], ids=lambda one: one.name)
def test_variation(variation: Variation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = (EXAMPLE / "train.py").read_text()
    text = base.replace("import os\n", "import contextlib\nimport os\n", 1)
    for old, new in variation.edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    before = Counter(code for code, _ in _said(tmp_path / "base", monkeypatch, base))
    found = _said(tmp_path / "changed", monkeypatch, text)
    lines = text.split("\n")
    new = [(code, line) for code, line in found if code not in before]
    assert sorted(code for code, _ in new) == sorted(code for code, _ in variation.brings), [(c, lines[n - 1]) for c, n in new]
    for code, part in variation.brings:
        assert any(code == c and part in lines[line - 1] for c, line in new), [(c, lines[n - 1]) for c, n in new]
    assert {code for code in before if code not in {c for c, _ in found}} <= set(variation.takes)
