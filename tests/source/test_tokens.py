"""Tokens are those of the standard library, but for words that would take it gigabytes."""

from __future__ import annotations

import io
import tokenize
import tracemalloc
from pathlib import Path

import pytest

from ddp_audit.findings import Finding, Span
from ddp_audit.server.session import keeping_change
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
    change = keeping_change(text, finding)
    assert change is not None and change.start == 0
