"""The documented JSON of `check`: docs/json.md, and schemas/check.schema.json next to this file."""

from __future__ import annotations

import json
from typing import Any

from ddp_audit import __version__
from ddp_audit.outcome import AuditResult

VERSION = 2  # raised when a key is added, goes, or changes its meaning


def render(result: AuditResult, run: dict[str, Any] | None = None) -> str:
    """One JSON document, keys in the documented order. `notes` is there only where there are any, `run` where it was asked for."""
    document: dict[str, object] = {
        "version": VERSION,
        "tool": {"name": "ddp-audit", "version": __version__},
        "files": result.files,
        "findings": [finding.to_json() for finding in result.findings],
        "errors": [{"path": e.path, "cell": e.cell, "line": e.line, "message": e.message} for e in result.errors],
        "suppressed": result.suppressed,
        "coverage": None if result.coverage is None else result.coverage.to_json(),
        "predicted": None if result.predicted is None else dict(result.predicted),
    }
    if result.notes:
        document["notes"] = result.notes
    if run is not None:
        document["run"] = run
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
