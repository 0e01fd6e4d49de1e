"""What the page asks of the auditor: one script as text, and the answer as JSON for the page to show."""

import json
import os
from pathlib import Path

FOLDER = Path("/home/audit")
NAME = "train.py"
MOST_TEXT = 200_000  # characters of a script


def audited(text: str, world_size: int) -> str:
    """Audit a script, predict its run on some ranks, and return both as one JSON text."""
    from ddp_audit.audit import audit
    from ddp_audit.cli.explained import explained
    from ddp_audit.outcome import Options
    from ddp_audit.report import causes, run_json, summary
    from ddp_audit.report.pages import page_url
    from ddp_audit.report.steps import in_order_of_flow

    if len(text) > MOST_TEXT:
        return json.dumps({"error": f"The script is longer than {MOST_TEXT:,} characters."})
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.chdir(FOLDER)
    Path(NAME).write_text(text, encoding="utf-8", errors="replace")
    options = Options(world_size=world_size)
    result = audit([NAME], options)
    run = None if result.errors else explained([NAME], options, {}, result, result.rules)
    found = causes.causes_of(result.findings)
    return json.dumps(
        {
            "summary": summary.closing_line(result, found),
            "coverage": causes.coverage_line(result),
            "errors": [{"line": error.line, "message": error.message} for error in result.errors],
            "findings": [
                {
                    "severity": cause.finding.severity,
                    "code": cause.finding.code,
                    "name": cause.finding.name,
                    "confidence": cause.finding.confidence,
                    "line": cause.finding.span.line,
                    "message": cause.finding.message,
                    "explanation": cause.finding.explanation,
                    "steps": [
                        {"line": step.line, "role": step.role, "text": step.text}
                        for step in in_order_of_flow(cause.finding.related)
                    ],
                    "fix": cause.finding.fix.description if cause.finding.fix else "",
                    "url": page_url(cause.finding.code),
                }
                for cause in found
            ],
            "run": None if run is None else run_json.as_object(run.predicted, run.path, run.beyond),
        }
    )
