"""What goes wrong with a file, in one line for the user."""

from __future__ import annotations


class SourceError(Exception):
    """A file that could not be found, read or parsed. `line` is None where the trouble has no line.

    With `cell`, which counts from 1, `line` is a line of that cell of a notebook.
    """

    def __init__(self, path: str, line: int | None, message: str, cell: int | None = None) -> None:
        super().__init__(path, line, message, cell)
        self.path = path
        self.line = line
        self.message = message
        self.cell = cell

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"
