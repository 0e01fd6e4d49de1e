"""GitLab's code quality report: an array of issues with a fingerprint each."""

from __future__ import annotations

import hashlib
import json

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.source.files import SourceError

_SEVERITIES = {"error": "critical", "warning": "major", "info": "info"}


def render(result: AuditResult) -> str:
    """The document. What could not be read is an issue of severity blocker."""
    issues = [_error(error) for error in result.errors] + [_finding(finding, result) for finding in result.findings]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _finding(finding: Finding, result: AuditResult) -> dict[str, object]:
    span = finding.span
    begin, end = (result.file_line(span.path, finding.cell, line) for line in (span.line, span.end_line))
    lines = {"begin": begin, "end": max(begin, end)}
    where = "" if finding.cell is None else f" (cell {finding.cell}, line {span.line})"
    return {
        "description": f"{finding.code} {finding.name}: {finding.message}{where}",
        "check_name": finding.code,
        "fingerprint": finding.fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": span.path, "lines": lines},
    }


def _error(error: SourceError) -> dict[str, object]:
    line = error.file_line or 1
    where = "" if error.cell is None else f" (cell {error.cell}, line {error.line})"
    digest = hashlib.sha256(f"{error.path}\0{error.message}".encode(errors="surrogateescape")).hexdigest()
    return {
        "description": f"could not be audited: {error.message}{where}",
        "check_name": "ddp-audit",
        "fingerprint": digest[:24],
        "severity": "blocker",
        "location": {"path": error.path, "lines": {"begin": line, "end": line}},
    }
