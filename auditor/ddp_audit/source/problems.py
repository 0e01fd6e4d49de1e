"""What goes wrong with a file, in one line for the user."""

from __future__ import annotations


class SourceError(Exception):
    """A file that could not be found, read or parsed. `line` is None where the trouble has no line.

    With `cell`, which counts from 1, `line` is a line of that cell of a notebook. `is_internal` marks an error of the auditor
    itself, which no change of the file corrects.
    """

    def __init__(self, path: str, line: int | None, message: str, cell: int | None = None, is_internal: bool = False) -> None:
        super().__init__(path, line, message, cell, is_internal)
        self.path = path
        self.line = line
        self.message = message
        self.cell = cell
        self.is_internal = is_internal

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"
