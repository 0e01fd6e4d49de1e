"""The documented JSON of `check`."""

from __future__ import annotations

import json
from typing import Any

from ddp_audit import __version__
from ddp_audit.outcome import AuditResult


def render(result: AuditResult, run: dict[str, Any] | None = None) -> str:
    """One JSON document, keys in the documented order. `notes` is there only where there are any, `run` where it was asked for."""
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
    if run is not None:
        document["run"] = run
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
