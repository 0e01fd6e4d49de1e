"""What goes wrong with a file, in one line for the user."""

from __future__ import annotations


class SourceError(Exception):
    """A file that could not be found, read or parsed. `line` is None where the trouble has no line."""

    def __init__(self, path: str, line: int | None, message: str) -> None:
        super().__init__(path, line, message)
        self.path = path
        self.line = line
        self.message = message

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"
