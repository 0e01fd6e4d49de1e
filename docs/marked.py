"""Puts a made part of a page between the two marks that stand around it."""

from __future__ import annotations


def with_part(text: str, begin: str, end: str, part: str) -> str:
    """The page with this part between its marks. Raises ValueError where they are missing."""
    head, first, rest = text.partition(begin)
    _, last, tail = rest.partition(end)
    if not first or not last:
        raise ValueError(f"the page has no place that is marked {begin.strip()} .. {end.strip()}")
    return f"{head}{begin}\n{part}\n{end}{tail}"
