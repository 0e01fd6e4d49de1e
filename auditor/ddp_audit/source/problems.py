"""What goes wrong with a file, in one line for the user."""

from __future__ import annotations

from ddp_audit.source.paths import place_of

_MOST_SAID = 500  # characters of what an unexpected error says


def said_of(error: BaseException) -> str:
    """Return the kind of an error that nobody expected and what it says, in one line; what it holds may have no text at all."""
    try:
        text = " ".join(str(error)[:_MOST_SAID].split())
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}"


class SourceError(Exception):
    """A file that could not be found, read or parsed. `line` is None where the trouble has no line.

    With `cell`, which counts from 1, `line` is a line of that cell of a notebook, and `file_line` the line of the file.
    `is_internal` marks an error of the auditor itself, which no change of the file corrects, and `is_audited` what is wrong with
    something else than the audit of the file, which has its findings.
    """

    def __init__(
        self,
        path: str,
        line: int | None,
        message: str,
        cell: int | None = None,
        is_internal: bool = False,
        file_line: int | None = None,
        is_audited: bool = False,
    ) -> None:
        super().__init__(path, line, message, cell, is_internal, file_line, is_audited)
        self.path = path
        self.line = line
        self.message = message
        self.cell = cell
        self.is_internal = is_internal
        self.is_audited = is_audited
        self.file_line = line if cell is None else file_line

    @property
    def place(self) -> str:
        """Path, and line and cell where there are such."""
        return self.path if self.line is None else place_of(self.path, self.line, cell=self.cell)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"
