"""How reports write a path."""

from __future__ import annotations

import os


def display_path(path: str | os.PathLike[str]) -> str:
    """A path as reports write it: relative to the working directory where it lies below it, with forward slashes."""
    absolute, here = os.path.abspath(path), os.path.join(os.getcwd(), "")
    if absolute.startswith(here):  # as nearly all do: relpath takes both apart
        return absolute[len(here) :].replace(os.sep, "/")
    try:
        relative = os.path.relpath(absolute)
    except ValueError:  # another drive on Windows
        relative = absolute
    return (absolute if relative.startswith("..") else relative).replace(os.sep, "/")
