"""Reviewdog's diagnostic format (rdjson), for comments on a pull request."""

from __future__ import annotations

import json
from typing import Any

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.report.pages import HOMEPAGE, page_of, page_url, suppression_pages
from ddp_audit.source.problems import SourceError

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "info": "INFO"}


def render(result: AuditResult) -> str:
    """Return the document."""
    found = [_error(error) for error in result.errors] + [_finding(finding, result) for finding in result.findings]
    document = {"source": {"name": "ddp-audit", "url": HOMEPAGE}, "severity": "WARNING", "diagnostics": found}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _finding(finding: Finding, result: AuditResult) -> dict[str, Any]:
    span = finding.span
    first, last = (result.file_line(span.path, finding.cell, line) for line in (span.line, span.end_line))
    if finding.cell is None:  # columns of a cell are not columns of the file
        where = {"start": {"line": first, "column": span.column}, "end": {"line": last, "column": span.end_column}}
    else:
        where = {"start": {"line": first}, "end": {"line": max(first, last)}}
    text = finding.message if finding.fix is None else f"{finding.message}\nFix: {finding.fix.description}"
    code: dict[str, str] = {"value": finding.code}
    address = url_of(finding.code, result)
    if address:
        code["url"] = address
    return {
        "message": text,
        "location": {"path": span.path, "range": where},
        "severity": _SEVERITIES[finding.severity],
        "code": code,
    }


def _error(error: SourceError) -> dict[str, Any]:
    location: dict[str, Any] = {"path": error.path}
    if error.file_line is not None:
        location["range"] = {"start": {"line": error.file_line}}
    return {"message": f"could not be audited: {error.message}", "location": location, "severity": "ERROR"}


def url_of(code: str, result: AuditResult) -> str:
    """Return the address of a rule's page; empty for a rule that has none on the site."""
    if any(page.code == code for page in suppression_pages()):
        return page_url(code)
    return page_of(result.rules[code]).url if code in result.rules else ""
