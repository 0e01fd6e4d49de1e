"""What reports in columns share. Widths are columns of a terminal, in which letters of East Asia take two."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from functools import partial
from typing import IO, Any
from unicodedata import east_asian_width

from ddp_audit.report.summary import lines_of

_LEAST = 40  # characters of a last column that is wrapped where it stands
_FILLER = "\0"


def widened(text: str) -> str:
    """A text with a filler behind each letter that takes two columns, so that its length is its width."""
    if text.isascii():
        return text
    return "".join(letter + _FILLER if east_asian_width(letter) in "WF" else letter for letter in text)


def width_of(text: str) -> int:
    """The columns that a text takes."""
    return len(widened(text))


def cut(text: str, width: int) -> str:
    """A text in no more than `width` columns; two dots stand for the rest."""
    wide = widened(text)
    if len(wide) <= width:
        return text
    kept = wide[: width - 2 - (wide[width - 2] == _FILLER)]  # no half of a letter
    return kept.replace(_FILLER, "") + ".."


def pad(text: str, width: int) -> str:
    """A text with blanks up to a width."""
    return text + " " * (width - width_of(text))


def wrap(text: str, width: int, **options: Any) -> list[str]:
    """As textwrap.wrap, by the columns that letters take."""
    return [line.replace(_FILLER, "") for line in textwrap.wrap(widened(text), width, **options)]


def fit(text: str, width: int) -> list[str]:
    """A line in lines of no more than `width` columns, where words allow it: a sentence hangs by two, the last of several
    columns below its beginning, and where that leaves too little room it begins below the others.

    >>> fit("a  one two three", 12), fit("one two three", 9)
    (['a', '    one two', '    three'], ['one two', '  three'])
    """
    if width_of(text) <= width:
        return [text]
    wrapped = partial(wrap, break_long_words=False, break_on_hyphens=False)
    indent = len(text) - len(text.lstrip())
    gaps = [match.end() for match in re.finditer(r"(?<=\S) {2,}(?=\S)", text)]
    if not gaps:
        return wrapped(text, width, subsequent_indent=" " * (indent + 2))
    hang = " " * (indent + 4)
    head, rest = text[: gaps[-1]], text[gaps[-1] :]
    if width - gaps[-1] >= _LEAST:
        return wrapped(rest, width, initial_indent=head, subsequent_indent=" " * gaps[-1])
    return [head.rstrip(), *wrapped(rest, width, initial_indent=hang, subsequent_indent=hang)]


def fitted(lines: Iterable[str], stream: IO[str]) -> Iterable[str]:
    """Lines as they fit a terminal; for any other stream as they are."""
    lines = (part for line in lines for part in lines_of(line).split("\n"))
    if not stream.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return (part for line in lines for part in fit(line, width))


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(lines: Iterable[str]) -> None:
    """Prints lines to standard output, fitted where that is a terminal."""
    print("\n".join(fitted(lines, sys.stdout)))
