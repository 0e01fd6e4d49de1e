"""The language of what people read: messages, help, reports, pages of rules and documents use the field's words.

A string of the program counts where it has several words and is not a docstring. The list is of words that readers stumbled over,
each with the better one.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTEAD = {
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:fore)?told": "reported, predicted",
    r"anew": "again",
    r"beside": "next to, in addition to",
    r"held against": "checked against",
    r"of which": "whose, or two sentences",
    r"there (?:is|are) none": "without one",
    r"for ever": "forever",
    r"as (?:it|they) stands?": "as written, unchanged",
    r"(?:is|are|was|were) no (?!longer\b|more\b|later\b|matter\b)": "is not a",
    r"whoever": "the rank that, everyone who",
    r"go(?:es)? well": "works",
    r"leaves? with (?:code )?\d": "exits with",
    r"gets on": "makes progress",
    r"ranks part|they part": "diverge",
    r"pass(?:es|ed|ing)? over (?:files|folders|in)": "skip",
    r"one too many": "cannot be combined with",
    r"To mend it": "Fix:",
}
FORBIDDEN = {
    re.compile(rf"\b(?:{pattern})\b" if not pattern.endswith(")") else rf"\b{pattern}", re.IGNORECASE): word
    for pattern, word in INSTEAD.items()
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the strings of a module that are no docstrings and have several words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node, clean=False
        ):
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            skipped.add(id(first.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
            yield node.lineno, "".join(value.value if isinstance(value, ast.Constant) else "x" for value in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and id(node) not in skipped:
            yield node.lineno, node.value


def faults(where: str, found: Iterator[tuple[int, str]]) -> list[str]:
    """Each forbidden word with its place and the better one."""
    return [
        f"{where}:{line}: {match[0]!r}, better: {word} (..{text[max(0, match.start() - 30) : match.end() + 30]}..)"
        for line, text in found
        for pattern, word in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]


@pytest.mark.parametrize("folder", ["auditor", "rules", "trainer"])
def test_texts_of_the_program(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    assert [fault for path in paths for fault in faults(str(path.relative_to(ROOT)), texts(path))] == []


def test_documents() -> None:
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    found = []
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        found += faults(path.name, iter(enumerate(lines, 1)))
        found += faults(path.name, iter([(0, f"{one} {two}") for one, two in itertools.pairwise(lines)]))
    assert found == []


def test_the_list_finds_what_it_is_for() -> None:
    bad = "This is no address. It was told anew, for ever: files of which 2 are mended, beside others, as it stands."
    assert len(faults("x", iter([(1, bad)]))) == 8
    assert faults("x", iter([(1, "It is no longer used; the fix is reported, and is not a hazard.")])) == []
