"""How reports write a path, and a place in a file."""

from __future__ import annotations

import os
from collections.abc import Iterable


class CellLine(int):
    """A line of the joined code of a notebook. As a number it is that; in a text it is the line of its cell: `4 of cell 3`.

    So `f"line {span.line}"` of any rule says what a reader of the notebook finds. `f"{line:d}"` is the number.
    """

    cell: int
    inner: int

    def __new__(cls, line: int, cell: int, inner: int) -> CellLine:
        made = super().__new__(cls, line)
        made.cell, made.inner = cell, inner
        return made

    def __getnewargs__(self) -> tuple[int, int, int]:  # type: ignore[override]
        return int(self), self.cell, self.inner

    def __str__(self) -> str:
        return f"{self.inner} of cell {self.cell}"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


def cell_and_line(line: int) -> tuple[int | None, int]:
    """Return the cell of a notebook and the line in it; None and the line itself for a line of any other file."""
    return (line.cell, line.inner) if isinstance(line, CellLine) else (None, line)


def place_of(path: str, line: int, column: int | None = None, cell: int | None = None) -> str:
    """Return a place as reports write it: `train.py:4:5`, and in a notebook `nb.ipynb:cell 3:4:5`."""
    if cell is None:
        cell, line = cell_and_line(line)
    parts = [path, *(() if cell is None else (f"cell {cell}",)), f"{line:d}", *(() if column is None else (f"{column:d}",))]
    return ":".join(parts)


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


def leads_out(path: str, folders: Iterable[str]) -> bool:
    """Whether an absolute path leads over symbolic links to something that lies in none of some folders."""
    real = os.path.realpath(path)
    if real == path:
        return False
    return not any(real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders)
