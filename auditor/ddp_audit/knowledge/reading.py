"""Reads the data files of this folder and checks them against the keys that are known."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_MOST_DOTS = 200  # in a line: the parser takes time with the square of the parts of a dotted key


class KnowledgeError(ValueError):
    """A description of a library that cannot be used; the text says what is wrong in it."""


def parse(text: str) -> dict[str, Any]:
    """Return the table of a TOML text. Raises KnowledgeError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise KnowledgeError(f"cannot be read: a line has more than {_MOST_DOTS} dots")
    try:
        loaded: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise KnowledgeError(f"is not valid TOML: {error}") from None
    return loaded


def tables(folder: str) -> Iterator[dict[str, Any]]:
    """Yield the table of each data file in a folder of this package, sorted by name."""
    for path in sorted((HERE / folder).glob("*.toml")):
        yield parse(path.read_text(encoding="utf-8"))


def known_keys(table: dict[str, Any], known: Iterable[str], where: str) -> None:
    """Raise KnowledgeError where a table has a key that is not known."""
    wanted = tuple(known)
    for key in table:
        if key not in wanted:
            import difflib  # for a message that ends the run

            near = difflib.get_close_matches(key, wanted, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else f"; the keys are {', '.join(wanted)}"
            raise KnowledgeError(f"unknown key '{key}' in {where}{hint}")


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Return a list of texts, or one text, as a tuple. Raises KnowledgeError."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise KnowledgeError(f"{what} must be a text or a list of texts")
    return tuple(items)
