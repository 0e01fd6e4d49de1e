"""Known findings kept in a file of the project, so that only new ones fail a check.

The file is JSON for review: sorted, one object a finding, with the line for people and the text that it is recognised by. A
finding is known by its fingerprint, which does not hold line numbers; and after its file was renamed by its code and text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddp_audit.findings import Finding

VERSION = 1


class BaselineError(Exception):
    """A baseline that cannot be read or written; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One known finding. `line` is where it stood when the file was written and is not compared."""

    code: str
    path: str
    line: int
    text: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Findings held against a baseline. `gone` were looked for and not found; `unseen` belong to files or rules left out."""

    new: list[Finding]
    known: list[Finding]
    gone: list[Entry]
    unseen: list[Entry]

    def __str__(self) -> str:
        return f"{len(self.new)} new, {len(self.known)} known, {len(self.gone)} gone"


def read_baseline(path: str) -> list[Entry]:
    """The entries of a baseline file. Raises BaselineError."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise BaselineError(f"{path}: is not a baseline of version {VERSION}")
        return [_entry(item) for item in document["findings"]]
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BaselineError(f"{path}: is not a baseline (--write-baseline makes one)") from None


def write_baseline(path: str, findings: Iterable[Finding], kept: Iterable[Entry] = ()) -> int:
    """Writes findings, and entries that are to stay, and returns how many those are. Raises BaselineError."""
    entries = {entry.fingerprint: entry for entry in kept}
    for finding in findings:
        span = finding.span
        entries[finding.fingerprint] = Entry(finding.code, span.path, span.line, _text(finding), finding.fingerprint)
    ordered = sorted(entries.values(), key=lambda entry: (entry.path, entry.line, entry.code, entry.fingerprint))
    document = {"version": VERSION, "findings": [asdict(entry) for entry in ordered]}
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        Path(path).write_bytes(text.encode("utf-8", "backslashreplace"))  # a name of a file need not be text
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from None
    return len(ordered)


def compare(
    findings: Sequence[Finding], entries: Sequence[Entry], looked_at: Collection[str], codes: Collection[str]
) -> Comparison:
    """Findings held against known ones. `looked_at` are the paths of the files that were read, `codes` those of the rules that ran.

    An entry of a file that is no longer there stands for a finding of the same code and text in another file: the file was
    renamed. Each entry stands for one finding.
    """
    by_fingerprint = {entry.fingerprint: entry for entry in entries}
    matched = {finding.fingerprint for finding in findings if finding.fingerprint in by_fingerprint}
    left = [entry for entry in entries if entry.fingerprint not in matched]
    moved = [entry for entry in left if entry.path not in looked_at and not Path(entry.path).exists()]
    renamed = Counter((entry.code, entry.text) for entry in moved)
    new: list[Finding] = []
    known: list[Finding] = []
    taken: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        key = (finding.code, _text(finding))
        if finding.fingerprint in matched:
            known.append(finding)
        elif taken[key] < renamed[key]:
            taken[key] += 1
            known.append(finding)
        else:
            new.append(finding)
    gone: list[Entry] = []
    unseen: list[Entry] = []
    for entry in left:
        key = (entry.code, entry.text)
        is_moved = entry in moved
        if is_moved and taken[key] > 0:
            taken[key] -= 1
        elif entry.code in codes and (is_moved or entry.path in looked_at):
            gone.append(entry)
        else:
            unseen.append(entry)
    return Comparison(new, known, gone, unseen)


def _text(finding: Finding) -> str:
    return " ".join(finding.source_line.split())


def _entry(item: dict[str, Any]) -> Entry:
    entry = Entry(**item)
    if not isinstance(entry.line, int) or not all(
        isinstance(text, str) for text in (entry.code, entry.path, entry.text, entry.fingerprint)
    ):
        raise TypeError
    return entry
