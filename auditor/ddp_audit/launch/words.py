"""A line of shell as words, and words as simple commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ddp_audit.launch.model import LaunchError
from ddp_audit.lazy_regex import lazy_compile

_SEPARATORS = {"&&", "||", ";", "|", "&", ";;"}
_REDIRECTION = lazy_compile(r"(\d|&)?>{1,2}|<{1,3}$")


def split_words(text: str) -> list[str]:
    """Splits a shell command into words. `$(...)`, `${...}` and back-quoted parts stay as they are, within their word.

    Raises `LaunchError` where a quotation or a parenthesis does not end.
    """
    text = re.sub(r"\\\s*\n\s*", " ", text.strip())
    text = re.sub(r"^(?:[$%#>!]\s+|!|\(\w+\)\s*\$\s+|>>>\s*)", "", text)
    text, held = _hold_substitutions(text)
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as error:
        raise LaunchError(f"the launch command does not end: {str(error).lower()}") from None
    return [re.sub("\ue000(\\d+)\ue001", lambda m: held[int(m.group(1))], word) for word in words]


def _hold_substitutions(text: str) -> tuple[str, list[str]]:
    """Replaces each substitution by a mark without spaces, so that the split leaves it whole; returns text and the parts."""
    held: list[str] = []
    out: list[str] = []
    at = 0
    while at < len(text):
        opening = text[at : at + 2]
        if opening in ("$(", "${"):
            end = _closing(text, at + 1)
        elif text[at] == "`":
            end = text.find("`", at + 1) + 1
        else:
            out.append(text[at])
            at += 1
            continue
        if end <= 0:
            raise LaunchError("the launch command does not end: no closing mark for " + opening.strip())
        out.append(f"\ue000{len(held)}\ue001")
        held.append(text[at:end])
        at = end
    return "".join(out), held


def _closing(text: str, opening: int) -> int:
    """The index after the bracket that closes the one at `opening`; 0 where none does."""
    pairs = {"(": ")", "{": "}"}
    close = pairs[text[opening]]
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == text[opening]) - (text[at] == close)
        if depth == 0:
            return at + 1
    return 0


def segments(words: Sequence[str]) -> list[list[str]]:
    """The simple commands of a list, without their redirections."""
    segments: list[list[str]] = [[]]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _SEPARATORS:
            segments.append([])
        elif redirection := _REDIRECTION.match(word):
            skip = redirection.end() == len(word)
        elif len(word) > 1 and word.endswith(";"):
            segments[-1].append(word[:-1])
            segments.append([])
        else:
            segments[-1].append(word)
    return [segment for segment in segments if segment]
