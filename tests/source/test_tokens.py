"""Tokens are those of the standard library, but for words that would take it gigabytes."""

from __future__ import annotations

import io
import tokenize
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddp_audit.findings import Finding, Span
from ddp_audit.server.session import keeping_changes
from ddp_audit.source.suppress import python_suppressions
from ddp_audit.source.tokens import tokens_of


def test_an_ordinary_text_has_its_own_tokens() -> None:
    text = Path(__file__).read_text()
    assert list(tokens_of(text)) == list(tokenize.generate_tokens(io.StringIO(text).readline))


@pytest.mark.parametrize("word", ["0x" + "f" * 200_000, "a" * 200_000, "1" * 4_000 + " + 0b" + "1" * 200_000])
def test_a_word_without_end_takes_little_and_moves_nothing(word: str) -> None:
    comment = "# ddp-audit: ignore[DDP201] why"
    text = f"x = {word}  {comment}\ny = 1\n"
    tracemalloc.start()
    (found,) = python_suppressions(text, "train.py")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.span.line, found.span.column) == (1, text.index(comment) + 1)
    assert most < 20_000_000
    finding = Finding("DDP201", "rank-guarded-collective", "error", "likely", Span("train.py", 1, 1, 1, 2), "m")
    change = keeping_changes(text, [finding]).get(0)
    assert change is not None and change.start == 0


def test_comments_that_keep_many_findings_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass for each finding takes minutes where a file of thousands of lines has one on each."""
    text = "# not a statement\nif a:\n    f(\n        1,\n        2,\n    )\n\ng(); h()\n"
    passes: list[str] = []

    def counted(text: str) -> Iterator[tokenize.TokenInfo]:
        passes.append(text)
        return tokens_of(text)

    monkeypatch.setattr("ddp_audit.source.suppress.tokens_of", counted)
    lines = [8, 1, 5, 2, 5, 7, 6, 99, 3]
    findings = [Finding("DDP201", "rank-guarded-collective", "error", "likely", Span("a.py", at, 1, at, 2), "m") for at in lines]
    changes = keeping_changes(text, findings)
    assert {number: change.start + 1 for number, change in changes.items()} == {0: 8, 2: 3, 3: 2, 4: 3, 6: 3, 8: 3}
    assert changes[2].text == "    # ddp-audit: ignore[DDP201]\n" and changes[0].text == "# ddp-audit: ignore[DDP201]\n"
    assert len(passes) == 1
