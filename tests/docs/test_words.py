"""The language of what people read: messages, help, reports, pages of rules and documents use the field's words.

A string of the program counts where it has several words and is not a docstring. The list is of words that readers stumbled over,
each with the better one.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
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


def faults(where: str, found: Iterator[tuple[int, str]], words: dict[re.Pattern[str], str] = FORBIDDEN) -> list[str]:
    """Each forbidden word with its place and the better one."""
    return [
        f"{where}:{line}: {match[0]!r}, better: {word} (..{text[max(0, match.start() - 30) : match.end() + 30]}..)"
        for line, text in found
        for pattern, word in words.items()
        for match in pattern.finditer(text)
    ]


@pytest.mark.parametrize("folder", ["auditor", "rules", "trainer"])
def test_texts_of_the_program(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    assert [fault for path in paths for fault in faults(str(path.relative_to(ROOT)), texts(path))] == []


# In docstrings and comments `there is no file` may stand, and `of which`.
IN_CODE = {
    pattern: word for pattern, word in FORBIDDEN.items() if "of which" not in pattern.pattern and " no " not in pattern.pattern
}
IN_CODE[re.compile(r"(?<!there )(?<!there\n)\b(?:is|was) no (?!longer\b|more\b|later\b|matter\b|such\b)", re.IGNORECASE)] = (
    "is not a"
)


def words_about_code(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings and comments of a module."""
    text = path.read_text(encoding="utf-8")
    if not any(pattern.search(text) for pattern in IN_CODE):
        return  # most files: parsing takes much longer
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            said = ast.get_docstring(node, clean=False)
            if said:
                yield node.body[0].lineno, said
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("folder", ["auditor", "rules", "trainer"])
def test_docstrings_and_comments(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert [fault for path in paths for fault in faults(str(path.relative_to(ROOT)), words_about_code(path), IN_CODE)] == []


# Names that said little, each with the one that took its place. They stay away as names of modules, and those with capitals or
# underscores as names of classes and functions.
EARLIER_NAMES = {
    "told": "project_hints", "Told": "ProjectHints", "seen": "dependency_log", "noting": "recording", "unchanged": "freshness",
    "gate": "prefilter", "matters": "mentions_distributed", "deep": "deep_stack",
    "with_room": "run_with_deep_stack", "rings": "cycles of graphs", "collection": "gc_pause", "no_collection": "gc_paused",
    "patterns": "lazy_regex", "pattern": "lazy_compile", "book": "definition_table", "Book": "DefinitionTable", "Odd": "UnsupportedLayout",
    "looks": "state_sampler", "Looks": "StateSampler", "Uses": "ApiHooks", "foretold": "prediction_check", "flight": "async_ops",
    "OneSided": "UnmatchedCollective", "one_sided": "find_unmatched_collectives", "absent": "missing_ranks", "ended": "termination",
    "crossed": "call_site_mismatch", "partners": "p2p_matching", "drift": "replica_drift", "Mend": "FixSpec", "mend": "apply_fixes",
    "_take_back": "_revert", "Refused": "FixNotApplicable", "way_to": "path_to", "meeting": "common_block", "Late": "LazyMapping",
    "witness": "verify",
}  # fmt: skip


def test_earlier_names_stay_away() -> None:
    found = []
    for path in sorted((ROOT / "auditor").rglob("*.py")):
        where = path.relative_to(ROOT)
        if path.stem in EARLIER_NAMES and where.parts[2] in ("source", "compare", "trace", "fix", "cli", "program"):
            found.append(f"{where}: better {EARLIER_NAMES[path.stem]}.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.name if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else ""
            if name in EARLIER_NAMES and ("_" in name or not name.islower()):
                found.append(f"{where} {name}: better {EARLIER_NAMES[name]}")
    assert found == []


def test_documents() -> None:
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "auditor/ddp_audit/report/page.html"]
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
