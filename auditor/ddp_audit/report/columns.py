"""What reports in columns share."""

from __future__ import annotations


def cut(text: str, width: int) -> str:
    """A text in no more than `width` characters; two dots stand for the rest."""
    return text if len(text) <= width else text[: width - 2] + ".."
