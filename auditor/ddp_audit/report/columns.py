"""What reports in columns share."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from functools import partial
from typing import IO

_LEAST = 40  # characters of a last column that is wrapped where it stands
_wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


def cut(text: str, width: int) -> str:
    """A text in no more than `width` characters; two dots stand for the rest."""
    return text if len(text) <= width else text[: width - 2] + ".."


def fit(text: str, width: int) -> list[str]:
    """A line in lines of no more than `width` characters, where words allow it: a sentence hangs by two, the last of several
    columns below its beginning, and where that leaves too little room it begins below the others.

    >>> fit("a  one two three", 12), fit("one two three", 9)
    (['a', '    one two', '    three'], ['one two', '  three'])
    """
    if len(text) <= width:
        return [text]
    indent = len(text) - len(text.lstrip())
    gaps = [match.end() for match in re.finditer(r"(?<=\S) {2,}(?=\S)", text)]
    if not gaps:
        return _wrap(text, width, subsequent_indent=" " * (indent + 2))
    hang = " " * (indent + 4)
    head, rest = text[: gaps[-1]], text[gaps[-1] :]
    if width - gaps[-1] >= _LEAST:
        return _wrap(rest, width, initial_indent=head, subsequent_indent=" " * gaps[-1])
    return [head.rstrip(), *_wrap(rest, width, initial_indent=hang, subsequent_indent=hang)]


def fitted(lines: Iterable[str], stream: IO[str]) -> Iterable[str]:
    """Lines as they fit a terminal; for any other stream as they are."""
    if not stream.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return (part for line in lines for part in fit(line, width))


def say(lines: Iterable[str]) -> None:
    """Prints lines to standard output, fitted where that is a terminal."""
    print("\n".join(fitted(lines, sys.stdout)))
