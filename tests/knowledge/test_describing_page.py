"""The examples of docs/describing-a-library.md find what the page says, and nothing without their descriptions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.knowledge.framework import QUESTIONS
from ddp_audit.knowledge.stubs import described_in

PAGE = (Path(__file__).parents[2] / "docs" / "describing-a-library.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
EXAMPLES = ("A launcher", "A wrapper", "A barrier helper", "A loader")


def block(section: str, language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE)
    assert len(found) == 1, section
    return str(found[0])


def audit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[set[str], list[str]]:
    main(["check", "--format", "json", *words, "train.py"])
    document = json.loads(capsys.readouterr().out)
    wanted = [f for f in document["findings"] if f["severity"] != "info"]
    return {f"{f['path']}:{f['line']} {f['code']}" for f in wanted}, document.get("notes", [])


@pytest.mark.parametrize("section", EXAMPLES)
def test_an_example_finds_what_the_page_says(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = set(re.findall(r"`(train\.py:\d+ DDP\d+)`", SECTIONS[section]))
    assert len(said) == 1
    assert len(block(section, "toml").splitlines()) <= 10
    Path("train.py").write_text(block(section, "python"))
    before, _ = audit(capsys)
    assert not said & before
    Path("acme.toml").write_text(block(section, "toml"))
    Path("ddp-audit.toml").write_text('stubs = ["acme.toml"]\n')
    after, notes = audit(capsys)
    assert said <= after and {one for one in after - before if not one.endswith("DDP213")} == said
    assert any("from acme.toml" in note and note.endswith("in effect.") for note in notes)


def test_the_table_of_questions_is_whole() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", SECTIONS["A training framework"], re.MULTILINE) == [
        question.replace("_", "-") for question in QUESTIONS
    ]


def test_the_framework_of_the_page_is_one() -> None:
    found = described_in(block("A training framework", "toml"), "acme.toml").framework
    assert found is not None and set(found.does) == {"tears_down_group", "owns_epoch"}
