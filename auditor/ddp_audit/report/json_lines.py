"""The findings of the JSON report one a line, for programs that read streams. docs/json.md describes the objects."""

from __future__ import annotations

import json

from ddp_audit.outcome import AuditResult


def render(result: AuditResult) -> str:
    """Return one object a line: files that could not be audited with `kind` error, then findings with `kind` finding."""
    rows: list[dict[str, object]] = [
        {"kind": "error", "path": e.path, "cell": e.cell, "line": e.line, "message": e.message} for e in result.errors
    ]
    rows += [{"kind": "finding", **finding.to_json()} for finding in result.findings]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
