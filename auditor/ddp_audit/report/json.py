"""The documented JSON of `check`."""

from __future__ import annotations

import json

from ddp_audit import __version__
from ddp_audit.audit import AuditResult


def render(result: AuditResult) -> str:
    """One JSON document, keys in the documented order. `notes` is there only where there are any."""
    document: dict[str, object] = {
        "version": 1,
        "tool": {"name": "ddp-audit", "version": __version__},
        "files": result.files,
        "findings": [finding.to_json() for finding in result.findings],
        "errors": [{"path": e.path, "line": e.line, "message": e.message} for e in result.errors],
        "suppressed": result.suppressed,
    }
    if result.notes:
        document["notes"] = result.notes
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
