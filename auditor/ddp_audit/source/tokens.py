"""The tokens of a Python text, with the memory that they take bounded."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from ddp_audit.lazy_regex import lazy_compile

# The expression that the standard library finds numbers with keeps 500 bytes for each of their digits.
_LONG = lazy_compile(r"[0-9A-Za-z_]{5000,}")


def tokens_of(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a text; of words and numbers of thousands of characters a short one at their place.

    Raise what tokenize raises.
    """
    short = _LONG.sub(_shortened, text) if any(len(line) >= 5_000 for line in text.splitlines()) else text
    return tokenize.generate_tokens(io.StringIO(short).readline)


def _shortened(word: re.Match[str]) -> str:
    return "0".ljust(len(word[0]))
