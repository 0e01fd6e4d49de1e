"""Settings of environment variables that documents and comments advise: `export NCCL_IB_DISABLE=1` in a README."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ddp_audit.findings import Span
from ddp_audit.launch.documents import prose_lines
from ddp_audit.lazy_regex import lazy_compile

_ON = lazy_compile(r"\b([A-Z][A-Z0-9_]+)\s*=\s*[\"']?1\b")


@dataclass(frozen=True, slots=True)
class Advice:
    """A variable that a text sets to 1, with the line before, its own and the one behind."""

    name: str
    span: Span
    around: str


def advised(text: str, path: str, names: Collection[str]) -> Iterator[Advice]:
    """The settings to 1 of some variables in the prose and commands of a file."""
    if not any(name in text for name in names):  # most files: their comments need not be read
        return
    for paragraph in prose_lines(text, path):
        for index, line in enumerate(paragraph):
            for match in _ON.finditer(line.text):
                if match.group(1) in names:
                    column = line.column + match.start()
                    span = Span(path, line.number, column, line.number, line.column + match.end())
                    around = " ".join(part.text for part in paragraph[max(0, index - 1) : index + 2])
                    yield Advice(match.group(1), span, around)
