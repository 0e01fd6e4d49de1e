"""Rules know a program by its facade alone, so that what stands behind it can change."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ddp_audit_rules
from ddp_audit.tree import nodes, questions, values

FACADE = {f"ddp_audit.tree.{name}" for name in ("nodes", "values", "questions")}
OF_TEXTS = {"transport_disabled", "_divisible"}  # settings in shell commands; numbers from files beside the program
FILES = sorted(Path(ddp_audit_rules.__file__).parent.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_asks_the_facade_and_nothing_behind_it(path: Path) -> None:
    inner = {name for name in imported(path) if name.startswith("ddp_audit.program") or name == "ddp_audit.tree"}
    assert not inner and all(name in FACADE for name in imported(path) if name.startswith("ddp_audit.tree"))


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in OF_TEXTS], ids=lambda path: path.stem)
def test_a_rule_reads_no_source(path: Path) -> None:
    """What code does is asked of its nodes and trees; launch commands and comments are texts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("program"):
            assert node.attr not in ("sources", "documents"), f"line {node.lineno} reads the text of a file"


def test_each_question_has_an_answer_in_one_place() -> None:
    names = [name for module in (nodes, values, questions) for name in module.__all__]
    assert len(names) == len(set(names))
