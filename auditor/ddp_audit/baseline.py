"""Known findings kept in a file of the project, so that only new ones fail a check.

The file is JSON for review: sorted, one object a finding, with the line for people and the text that it is recognised by. A
finding is known by its fingerprint, which does not hold line numbers; and after its file was renamed by its code and text. Paths
are relative to the folder of the file, so that it holds whatever folder the check is run in.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddp_audit.findings import Finding, fingerprint_of
from ddp_audit.source.reading import read_text

VERSION = 1
_MOST_EQUAL = 1000  # findings of one rule on equal lines of a file


class BaselineError(Exception):
    """A baseline that cannot be read or written; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One known finding. `line`, in a notebook of the cell, is where it stood when the file was written and is not compared."""

    code: str
    path: str
    line: int
    text: str
    fingerprint: str
    cell: int | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        return (self.path, self.cell or 0, self.line, self.code, self.fingerprint)

    def to_json(self) -> dict[str, Any]:
        """The object as the file has it: `cell` only in notebooks."""
        return {key: value for key, value in asdict(self).items() if key != "cell" or value is not None}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Findings compared with a baseline. `gone` were looked for and not found; `unseen` belong to files or rules left out."""

    new: list[Finding]
    known: list[Finding]
    gone: list[Entry]
    unseen: list[Entry]

    def __str__(self) -> str:
        return f"{len(self.new)} new, {len(self.known)} known, {len(self.gone)} gone"


def read_baseline(path: str) -> list[Entry]:
    """The entries of a baseline file. Raises BaselineError."""
    try:
        document = json.loads(read_text(path))
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
        own = _path_from(_folder_of(path), finding.span.path)
        entry = Entry(finding.code, own, finding.span.line, _text(finding), finding.fingerprint_at(own), finding.cell)
        entries[entry.fingerprint] = entry
    ordered = sorted(entries.values(), key=lambda entry: entry.sort_key)
    document = {"version": VERSION, "findings": [entry.to_json() for entry in ordered]}
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        Path(path).write_bytes(text.encode("utf-8", "backslashreplace"))  # a name of a file need not be text
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from None
    return len(ordered)


def rebased(entries: Iterable[Entry], old: str, new: str) -> list[Entry]:
    """Entries of the baseline file `old` as they are in the file `new`, which may lie in another folder."""
    before, after = _folder_of(old), _folder_of(new)
    if before == after:
        return list(entries)
    return [_at(entry, _path_from(after, os.path.join(before, entry.path))) for entry in entries]


def _at(entry: Entry, path: str) -> Entry:
    """An entry with its path written in another way. What tells equal lines of a file apart is in its fingerprint alone."""
    for number in range(_MOST_EQUAL):
        if entry.fingerprint == fingerprint_of(entry.code, entry.path, entry.text, number):
            return replace(entry, path=path, fingerprint=fingerprint_of(entry.code, path, entry.text, number))
    return replace(entry, path=path)  # a fingerprint that was edited: it matched nothing before and matches nothing now


def compare(
    findings: Sequence[Finding],
    entries: Sequence[Entry],
    files_read: Collection[str],
    codes: Collection[str],
    *,
    baseline: str = "",
    folders: Collection[str] = (),
) -> Comparison:
    """Findings compared with known ones of the file `baseline`.

    `looked_at` are the paths of the Python files that were read, `codes` those of the rules that ran, `folders` those that were
    audited whole: what was known of a document in them and is not found again is gone.
    An entry of a file that is no longer there stands for a finding of the same code and text in another file: the file was
    renamed. Each entry stands for one finding.
    """
    home = _folder_of(baseline)
    prints = [finding.fingerprint_at(_path_from(home, finding.span.path)) for finding in findings]
    matched = {entry.fingerprint for entry in entries}.intersection(prints)
    left = [entry for entry in entries if entry.fingerprint not in matched]
    seen = {_path_from(home, path) for path in files_read}
    moved = [entry for entry in left if entry.path not in seen and not Path(home, entry.path).exists()]
    whole = tuple(os.path.join(os.path.abspath(folder), "") for folder in folders)
    renamed = Counter((entry.code, entry.text) for entry in moved)
    new: list[Finding] = []
    known: list[Finding] = []
    taken: Counter[tuple[str, str]] = Counter()
    for finding, fingerprint in zip(findings, prints, strict=True):
        key = (finding.code, _text(finding))
        if fingerprint in matched:
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
        elif entry.code in codes and (is_moved or entry.path in seen or _is_document_in(whole, home, entry.path)):
            gone.append(entry)
        else:
            unseen.append(entry)
    return Comparison(new, known, gone, unseen)


def _folder_of(baseline: str) -> str:
    return os.path.dirname(os.path.abspath(baseline)) if baseline else os.getcwd()


def _path_from(home: str, path: str) -> str:
    """A path as reports write it, relative to a folder."""
    return os.path.relpath(os.path.abspath(path), home).replace(os.sep, "/")


def _is_document_in(folders: tuple[str, ...], home: str, path: str) -> bool:
    return not path.endswith((".py", ".ipynb")) and os.path.abspath(os.path.join(home, path)).startswith(folders)


def _text(finding: Finding) -> str:
    return " ".join(finding.source_line.split())


def _entry(item: dict[str, Any]) -> Entry:
    entry = Entry(**item)
    if (
        not isinstance(entry.line, int)
        or not isinstance(entry.cell, int | None)
        or not all(isinstance(text, str) for text in (entry.code, entry.path, entry.text, entry.fingerprint))
    ):
        raise TypeError
    return entry
