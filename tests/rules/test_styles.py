"""How real code writes distributed training: rank sources, flags, guards, sharding, accumulation, frameworks.

Each program is judged by every rule at the levels warning and error: what is marked `# CODE` at the end of a line is found there,
and nothing else is said.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from found import audited, findings, rules
from style_conditions import EXITS, RANK_SOURCES, UNIFORM
from style_frameworks import FRAMEWORKS
from style_more import MORE
from style_parts import DATA, HEAD, INIT, MODEL
from style_projects import PROJECTS
from style_training import ACCUMULATION, ARITHMETIC, DEVICES, EPOCHS, SHARDS, WRAPPERS

CODES = (
    "DDP101", "DDP105", "DDP112", "DDP113", "DDP115", "DDP201", "DDP202", "DDP203", "DDP301", "DDP302", "DDP401", "DDP502", "DDP601",
)  # fmt: skip

TABLE = (
    {("rank", name): INIT + text for name, text in RANK_SOURCES.items()}
    | {("same", name): INIT + text for name, text in UNIFORM.items()}
    | {("exit", name): INIT + text for name, text in EXITS.items()}
    | {("accumulation", name): INIT + text for name, text in ACCUMULATION.items()}
    | {("shard", name): INIT + DATA + MODEL + text for name, text in SHARDS.items()}
    | {("epoch", name): INIT + DATA + MODEL + text for name, text in EPOCHS.items()}
    | {("wrapper", name): INIT + MODEL + text for name, text in WRAPPERS.items()}
    | {("arithmetic", name): INIT + text for name, text in ARITHMETIC.items()}
    | {("device", name): INIT + MODEL + text for name, text in DEVICES.items()}
    | {("framework", name): text for name, text in FRAMEWORKS.items()}
    | {("project", name): text for name, text in PROJECTS.items()}
    | {("more", name): text for name, text in MORE.items()}
)


@pytest.mark.parametrize("key", list(TABLE), ids="-".join)
def test_every_rule_on_a_style(key: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = HEAD + TABLE[key]
    context = audited(tmp_path, text)
    loud = [f for code in CODES for f in findings(code, context) if f.severity != "info"]
    wanted = {(m[1], number) for number, line in enumerate(text.split("\n"), 1) if (m := re.search(r"# (DDP\d{3})$", line))}
    assert {(f.code, f.span.line) for f in loud} == wanted, [(f.code, f.span.line, f.message) for f in loud]


def test_the_table_asks_rules_that_are_there() -> None:
    assert set(CODES) <= set(rules())
