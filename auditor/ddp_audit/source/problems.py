"""What goes wrong with a file, in one line for the user."""

from __future__ import annotations

from ddp_audit.source.paths import place_of


class SourceError(Exception):
    """A file that could not be found, read or parsed. `line` is None where the trouble has no line.

    With `cell`, which counts from 1, `line` is a line of that cell of a notebook, and `file_line` the line of the file.
    `is_internal` marks an error of the auditor itself, which no change of the file corrects.
    """

    def __init__(
        self,
        path: str,
        line: int | None,
        message: str,
        cell: int | None = None,
        is_internal: bool = False,
        file_line: int | None = None,
    ) -> None:
        super().__init__(path, line, message, cell, is_internal, file_line)
        self.path = path
        self.line = line
        self.message = message
        self.cell = cell
        self.is_internal = is_internal
        self.file_line = line if cell is None else file_line

    @property
    def place(self) -> str:
        """Path, and line and cell where there are such."""
        return self.path if self.line is None else place_of(self.path, self.line, cell=self.cell)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"
