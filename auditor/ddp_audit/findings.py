"""What a rule reports: findings, the places related to them, and how sure the auditor is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from ddp_audit.source.paths import place_of

SEVERITIES = ("info", "warning", "error")
CONFIDENCES = ("possible", "likely", "certain")

# What a recorded run says of a finding.
CONFIRMED = "confirmed"  # it shows what the hazard does, and a correct program would not
NOT_OBSERVED = "not-observed"  # it could have shown the hazard, and did not
NOT_EXERCISED = "not-exercised"  # nothing that it recorded can show the hazard
NOT_COVERED = "not-covered"  # it ended before it came to the finding's line
VERDICTS = (CONFIRMED, NOT_OBSERVED, NOT_EXERCISED, NOT_COVERED)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source. Lines and columns count from 1; the end column is one past the last character."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def place(self) -> str:
        """Path and line, as texts name a place."""
        return place_of(self.path, self.line)

    def __hash__(self) -> int:  # spans are parts of most keys of the lowering; the start tells nearly all apart
        return hash((self.line, self.column, self.path))


@dataclass(frozen=True, slots=True)
class Related:
    """A place that a finding rests on. `role` says what it is to the finding: guard, call, wrap, buffer, forward, launch.

    With `cell`, which counts from 1, `line` is a line of that cell of a notebook.
    """

    path: str
    line: int
    role: str
    text: str
    cell: int | None = None

    @property
    def place(self) -> str:
        """Path and line, in a notebook with the cell, as texts name a place."""
        return place_of(self.path, self.line, cell=self.cell)

    def to_json(self) -> dict[str, object]:
        """The object of the documented JSON form."""
        return {"path": self.path, "cell": self.cell, "line": self.line, "role": self.role, "text": self.text}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the script that is off by default and brings the finding out with another value. Both are scalars of JSON."""

    name: str
    default: object
    value: object

    def to_json(self) -> dict[str, object]:
        """The object of the documented JSON form."""
        return {"name": self.name, "default": self.default, "value": self.value}


@dataclass(frozen=True, slots=True)
class Place:
    """One of several places that a finding has because they have one cause."""

    path: str
    line: int
    column: int = 1
    cell: int | None = None

    def to_json(self) -> dict[str, object]:
        """The object of the documented JSON form."""
        return {"path": self.path, "cell": self.cell, "line": self.line, "column": self.column}


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do instead. `safety` is safe, unsafe or display-only; `description` completes 'Fix: ..'.

    A safe or unsafe fix can be applied by the codemod of the finding's code (package `fix`); `detail` is a word for it, and
    `title` says in a few words what that one edit does, where the title in the codemod's catalogue does not say it.
    """

    safety: str
    description: str
    detail: str = ""
    title: str = ""


@dataclass(slots=True)
class Finding:
    """One hazard at one place. `message` is one whole sentence; `explanation` says what happens on which ranks, and when not.

    `option` is set where only an option that is off by default brings the hazard out. Findings of one code with the same `cause`
    have one cause, and each names all its places in `places`. With `cell`, which counts from 1, the lines of `span` are lines of
    that cell of a notebook.
    """

    code: str
    name: str
    severity: str
    confidence: str
    span: Span
    message: str
    explanation: str = ""
    related: list[Related] = field(default_factory=list)
    fix: Fix | None = None
    verdict: str | None = None  # one of VERDICTS
    verdict_reason: str = ""  # why a run decides nothing, and what would
    source_line: str = ""  # text of the first line, without indentation; part of the fingerprint
    occurrence: int = 0  # counts equal findings on equal text in one file, so that fingerprints differ
    option: Option | None = None
    places: list[Place] | None = None
    cell: int | None = None
    cause: str = ""  # the same for findings of one code that one change fixes

    @property
    def sort_key(self) -> tuple[str, int, int, int, str]:
        return (self.span.path, self.cell or 0, self.span.line, self.span.column, self.code)

    @property
    def place(self) -> str:
        """Path and line, in a notebook with the cell, as texts name a place."""
        return place_of(self.span.path, self.span.line, cell=self.cell)

    @property
    def start(self) -> str:
        """Path, in a notebook cell, line and column, as a report begins with it."""
        return place_of(self.span.path, self.span.line, self.span.column, self.cell)

    @property
    def paths(self) -> set[str]:
        """Every file that the finding names."""
        return {self.span.path, *(place.path for place in (*self.related, *(self.places or ())))}

    @property
    def fingerprint(self) -> str:
        """Stable when lines are added or removed elsewhere: code, path, the line's own text and its count in the file."""
        return self.fingerprint_at(self.span.path)

    def fingerprint_at(self, path: str) -> str:
        """The fingerprint with the path written in another way."""
        return fingerprint_of(self.code, path, " ".join(self.source_line.split()), self.occurrence)

    def to_json(self) -> dict[str, object]:
        """The object of the documented JSON form (docs/json.md): `verdict` and `verdict_reason` only where a trace gave one."""
        out: dict[str, object] = {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "confidence": self.confidence,
            "path": self.span.path,
            "cell": self.cell,
            "line": self.span.line,
            "column": self.span.column,
            "end_line": self.span.end_line,
            "end_column": self.span.end_column,
            "message": self.message,
            "explanation": self.explanation,
            "related": [place.to_json() for place in self.related],
            "places": None if self.places is None else [place.to_json() for place in self.places],
            "option": None if self.option is None else self.option.to_json(),
            "fix": None if self.fix is None else {"safety": self.fix.safety, "description": self.fix.description},
            "fingerprint": self.fingerprint,
        }
        if self.verdict is not None:
            out["verdict"] = self.verdict
            out["verdict_reason"] = self.verdict_reason or None
        return out


def fingerprint_of(code: str, path: str, text: str, occurrence: int) -> str:
    """The fingerprint of a finding on a line whose words are `text`, with single spaces between them."""
    joined = "\0".join((code, path, text, str(occurrence)))
    return hashlib.sha256(joined.encode(errors="surrogateescape")).hexdigest()[:24]


def number_occurrences(findings: list[Finding]) -> None:
    """Gives findings of one code on equal text of one file the numbers 0, 1, .. in source order. Changes them in place."""
    seen: dict[tuple[str, str, str], int] = {}
    for finding in sorted(findings, key=lambda f: f.sort_key):
        key = (finding.code, finding.span.path, " ".join(finding.source_line.split()))
        finding.occurrence = seen.get(key, 0)
        seen[key] = finding.occurrence + 1


def gather_places(findings: Sequence[Finding]) -> None:
    """Give findings of one cause the places of all of them, in the order of the findings. Changes them in place."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if finding.cause:
            groups.setdefault((finding.code, finding.cause), []).append(finding)
    for group in groups.values():
        if len(group) > 1:
            places = [Place(one.span.path, int(one.span.line), one.span.column, one.cell) for one in group]
            for finding in group:
                finding.places = places
