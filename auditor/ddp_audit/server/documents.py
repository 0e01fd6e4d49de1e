"""The open documents of an editor: what is in them, the last text of each that Python can parse, and what was found in that."""

from __future__ import annotations

import io
import os
import tokenize
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ddp_audit.findings import Finding
from ddp_audit.source.files import SourceError

UNTITLED = "untitled"


@dataclass(slots=True)
class Document:
    """One open document. `path` is absolute; a document without a file has the one that its name would have.

    `text` has `\\n` as its only line end, `newline` is the one that the editor uses. `good` is the last text that Python could
    parse, None where there was none yet; `findings`, `errors` and `reads` (the absolute paths of all files that were read) are
    of its audit. `broken` says why the present text does not parse.
    """

    uri: str
    path: str
    text: str
    version: int | None = None
    newline: str = "\n"
    good: str | None = None
    broken: SourceError | None = None
    findings: list[Finding] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    reads: frozenset[str] = frozenset()

    def change(self, text: str, version: int | None) -> None:
        """Takes over a new text of the editor."""
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.text, self.version = with_plain_ends(text), version

    @property
    def shown(self) -> list[Finding]:
        """The findings at their places in the present text, which may differ from the one that was audited."""
        return moved(self.findings, self.good or "", self.text)


def with_plain_ends(text: str) -> str:
    """A text with `\\n` as its only line end; the protocol knows the same three as Python."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def path_of(uri: str, root: str) -> str | None:
    """The absolute path of a document, in the folder `root` for one that has no file yet; None for other kinds of documents."""
    parts = urlsplit(uri)
    if parts.scheme == UNTITLED:
        return os.path.normpath(Path(root, unquote(parts.path)))
    from pygls.uris import to_fs_path

    return to_fs_path(uri)


def as_bytes(text: str) -> bytes:
    """The bytes of a document's text as its editor would save it: in the encoding that a coding comment names, else UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return text.encode(encoding)
    except (SyntaxError, LookupError, UnicodeError):
        return data


def moved(findings: list[Finding], before: str, after: str) -> list[Finding]:
    """Findings of one text at their places in another one.

    Lines that the two texts share at their beginning and end keep their findings. What lies in the changed lines between them
    stays on its line as long as there is one.
    """
    if before == after or not findings:
        return list(findings)
    old, new = before.split("\n"), after.split("\n")
    most = min(len(old), len(new))
    start = next((number for number in range(most) if old[number] != new[number]), most)
    end = next((number for number in range(most - start) if old[-1 - number] != new[-1 - number]), most - start)
    shift = len(new) - len(old)

    def line(number: int) -> int:
        if number <= start:
            return number
        if number > len(old) - end:
            return number + shift
        return max(1, min(number, len(new) - end))

    return [
        replace(found, span=replace(found.span, line=line(found.span.line), end_line=line(found.span.end_line)))
        for found in findings
    ]
