"""The console that reports for people are drawn on: its width, and whether it has colours.

Colours and links go to a terminal. `--color always` and `--color never` decide it, then NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

CHOICES = ("auto", "always", "never")
WIDEST = 100  # columns of text that can still be read

_chosen = "auto"


@contextmanager
def chosen(choice: str) -> Iterator[None]:
    """Hold what --color asks for, one of CHOICES, inside a with block."""
    global _chosen
    before, _chosen = _chosen, choice
    try:
        yield
    finally:
        _chosen = before


def is_coloured(stream: IO[str]) -> bool:
    """Return whether a stream gets colours and links."""
    if _chosen != "auto":
        return _chosen == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width_for(stream: IO[str]) -> int:
    """Return the columns of a report: those of the terminal, or of COLUMNS, and no more than can be read."""
    given = os.environ.get("COLUMNS", "")
    if not stream.isatty() and not given.isdecimal():
        return WIDEST
    return max(40, min(WIDEST, shutil.get_terminal_size((80, 24)).columns))


def console_for(stream: IO[str], width: int | None = None) -> Console:
    """Return a console on a stream that prints text as it is, with neither markup nor highlighting."""
    from rich.console import Console

    coloured = is_coloured(stream)
    return Console(
        file=stream,
        width=width or width_for(stream),
        color_system=("truecolor" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "standard") if coloured else None,
        force_terminal=coloured,
        no_color=False,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
        legacy_windows=False,
    )
