"""SARIF 2.1.0: one run, rules with their pages, results with related locations and the path that leads to them."""

from __future__ import annotations

import json
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ddp_audit import __version__
from ddp_audit.findings import Finding, Related
from ddp_audit.outcome import AuditResult
from ddp_audit.report.pages import Page, page_of, suppression_pages
from ddp_audit.source.files import SourceError

if TYPE_CHECKING:
    from ddp_audit.fix.text import Edit

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_RANKS = {"certain": 95.0, "likely": 75.0, "possible": 40.0}


def render(result: AuditResult) -> str:
    """The document. File names below the working directory are relative to the base id SRCROOT."""
    pages = {code: page_of(rule) for code, rule in result.rules.items()} | {page.code: page for page in suppression_pages()}
    codes = sorted(pages)
    index = {code: number for number, code in enumerate(codes)}
    edits = _edits(result)
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "ddp-audit", "version": __version__, "rules": [_rule(pages[code]) for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not result.errors,
                "toolExecutionNotifications": [_notification(error) for error in result.errors]
                + [{"level": "note", "message": {"text": note}} for note in result.notes],
            }
        ],
        "results": [_result(finding, index, edits.get(id(finding))) for finding in result.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(page: Page) -> dict[str, Any]:
    return {
        "id": page.code,
        "name": page.name,
        "shortDescription": {"text": page.what},
        "fullDescription": {"text": f"{page.what} {page.why}"},
        "help": {"text": page.text(), "markdown": page.markdown()},
        "defaultConfiguration": {"level": _LEVELS[page.severity]},
        "properties": {"tags": ["pytorch", "distributed"]},
    }


def _edits(result: AuditResult) -> dict[int, Edit]:
    """What the codemod of each finding changes, where there is one that knows the shape; by the finding's id."""
    mendable = [
        f for f in result.findings if f.fix is not None and f.fix.safety != "display-only" and f.span.path in result.sources
    ]
    if not mendable:
        return {}
    from ddp_audit.fix.rounds import edits_of  # libcst, which takes time to import

    texts = {path: "\n".join(result.sources[path]) for path in {finding.span.path for finding in mendable}}
    return edits_of(mendable, {path: text if text.endswith("\n") else f"{text}\n" for path, text in texts.items()})


def _fix(finding: Finding, edit: Edit) -> dict[str, Any]:
    """A fix that replaces whole lines."""
    assert finding.fix is not None
    region = {"startLine": edit.start + 1, "startColumn": 1, "endLine": edit.end + 1, "endColumn": 1}
    replacement = {"deletedRegion": region, "insertedContent": {"text": "".join(edit.lines)}}
    return {
        "description": {"text": finding.fix.description},
        "artifactChanges": [{"artifactLocation": _artifact(finding.span.path), "replacements": [replacement]}],
        "properties": {"safety": finding.fix.safety},
    }


def _result(finding: Finding, index: dict[str, int], edit: Edit | None) -> dict[str, Any]:
    span = finding.span
    region = {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
    place = {"physicalLocation": {"artifactLocation": _artifact(span.path), "region": region}}
    text = "\n".join(filter(None, (finding.message, finding.explanation)))
    out: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "rank": _RANKS[finding.confidence],
        "message": {"text": text},
        "locations": [place],
        "partialFingerprints": {"ddpAudit/v1": finding.fingerprint},
        "properties": {"confidence": finding.confidence},
    }
    if finding.code in index:
        out["ruleIndex"] = index[finding.code]
    if finding.verdict is not None:
        out["properties"]["verdict"] = finding.verdict
    if edit is not None:
        out["fixes"] = [_fix(finding, edit)]
    if finding.related:
        steps = [_step(related) for related in finding.related]
        out["relatedLocations"] = [{"id": number, **step} for number, step in enumerate(steps, 1)]
        end = {**place, "message": {"text": finding.message}}
        out["codeFlows"] = [{"threadFlows": [{"locations": [{"location": step} for step in (*steps, end)]}]}]
    return out


def _step(related: Related) -> dict[str, Any]:
    place = {"artifactLocation": _artifact(related.path), "region": {"startLine": max(1, related.line)}}
    return {"physicalLocation": place, "message": {"text": f"{related.role}: {related.text}"}}


def _notification(error: SourceError) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(error.path)}
    if error.line is not None:
        location["region"] = {"startLine": error.line}
    return {"level": "error", "message": {"text": error.message}, "locations": [{"physicalLocation": location}]}


def _artifact(path: str) -> dict[str, str]:
    if PurePath(path).is_absolute():
        return {"uri": PurePath(path).as_uri()}
    return {"uri": quote(os.fsencode(path)), "uriBaseId": "SRCROOT"}
