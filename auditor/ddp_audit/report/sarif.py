"""SARIF 2.1.0: one run, the rules that were hit with their pages, results with related locations and the path that leads to them.

SARIF knows no cells: a place in a notebook has the line of the file that holds the source, and the cell as a logical location.
"""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ddp_audit import __version__
from ddp_audit.findings import Finding, Related, Span
from ddp_audit.outcome import AuditResult
from ddp_audit.report.pages import HOMEPAGE, Page, page_of, suppression_pages
from ddp_audit.source.files import SourceError

if TYPE_CHECKING:
    from ddp_audit.fix.text import Edit

_BASE = "SRCROOT"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_RANKS = {"certain": 95.0, "likely": 75.0, "possible": 40.0}


def render(result: AuditResult) -> str:
    """The document. File names below the working directory are relative to the base id SRCROOT, which is that directory."""
    hit = {finding.code for finding in result.findings}
    pages = {page.code: page for page in suppression_pages()}
    if hit - pages.keys():  # loading the rules takes time
        pages |= {code: page_of(rule) for code, rule in result.rules.items()}
    codes = sorted(hit & pages.keys())
    index = {code: number for number, code in enumerate(codes)}
    edits = _edits(result)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "ddp-audit",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": HOMEPAGE,
                "rules": [_rule(pages[code]) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            _BASE: {
                "uri": Path(Path.cwd(), "_").as_uri().removesuffix("_"),
                "description": {"text": "The directory that ddp-audit was run in."},
            }
        },
        "invocations": [
            {
                "executionSuccessful": not result.errors,
                "toolExecutionNotifications": [_notification(error) for error in result.errors]
                + [{"level": "note", "message": {"text": note}} for note in result.notes],
            }
        ],
        "results": [_result(finding, result, index, edits.get(id(finding))) for finding in result.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(page: Page) -> dict[str, Any]:
    link = {"helpUri": page.url} if page.url else {}
    return {
        "id": page.code,
        "name": page.name,
        **link,
        "shortDescription": {"text": page.what},
        "fullDescription": {"text": f"{page.what} {page.why}"},
        "help": {"text": _short_help(page), "markdown": page.markdown()},
        "defaultConfiguration": {"level": _LEVELS[page.severity]},
        "properties": {"tags": ["pytorch", "distributed", *(["preview"] if page.preview else [])]},
    }


def _short_help(page: Page) -> str:
    """What a reader without Markdown is shown: the fix, and where the page is. The page itself is there once, as Markdown."""
    where = page.url or f"ddp-audit explain {page.code}"
    return f"Fix: {page.remedy.rstrip('.')}. See {where}" if page.remedy else f"See {where}"


def _edits(result: AuditResult) -> dict[int, Edit]:
    """What the codemod of each finding changes, where there is one that knows the shape; by the finding's id."""
    texts = {path: "\n".join(lines) for path, lines in result.sources.items() if path.endswith(".py")}
    mendable = [f for f in result.findings if f.fix is not None and f.fix.safety != "display-only" and f.span.path in texts]
    if not mendable:
        return {}
    from ddp_audit.fix.rounds import edits_of  # libcst, which takes time to import

    own = {path: texts[path] for path in {finding.span.path for finding in mendable}}
    return edits_of(mendable, {path: text if text.endswith("\n") else f"{text}\n" for path, text in own.items()})


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


def _place(result: AuditResult, span: Span, cell: int | None) -> dict[str, Any]:
    """A location: in a notebook the lines of the file that hold those of the cell, without columns."""
    where: dict[str, Any] = {"artifactLocation": _artifact(span.path)}
    if cell is None:
        where["region"] = {
            "startLine": span.line,
            "startColumn": span.column,
            "endLine": span.end_line,
            "endColumn": span.end_column,
        }
        return {"physicalLocation": where}
    first, last = (result.file_line(span.path, cell, line) for line in (span.line, span.end_line))
    where["region"] = {"startLine": first, "endLine": max(first, last)}
    return {"physicalLocation": where, "logicalLocations": [_logical(cell, span.line)]}


def _logical(cell: int, line: int) -> dict[str, str]:
    return {"name": f"cell {cell}", "fullyQualifiedName": f"cell {cell}, line {line}", "kind": "cell"}


def _result(finding: Finding, result: AuditResult, index: dict[str, int], edit: Edit | None) -> dict[str, Any]:
    place = _place(result, finding.span, finding.cell)
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
        steps = [_step(related, result) for related in finding.related]
        out["relatedLocations"] = [{"id": number, **step} for number, step in enumerate(steps, 1)]
        end = {**place, "message": {"text": finding.message}}
        out["codeFlows"] = [{"threadFlows": [{"locations": [{"location": step} for step in (*steps, end)]}]}]
    return out


def _step(related: Related, result: AuditResult) -> dict[str, Any]:
    line = result.file_line(related.path, related.cell, related.line)
    place = {"artifactLocation": _artifact(related.path), "region": {"startLine": max(1, line)}}
    cell = {} if related.cell is None else {"logicalLocations": [_logical(related.cell, related.line)]}
    return {"physicalLocation": place, **cell, "message": {"text": f"{related.role}: {related.text}"}}


def _notification(error: SourceError) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(error.path)}
    if error.file_line is not None:
        location["region"] = {"startLine": error.file_line}
    cell = {} if error.cell is None or error.line is None else {"logicalLocations": [_logical(error.cell, error.line)]}
    return {"level": "error", "message": {"text": error.message}, "locations": [{"physicalLocation": location, **cell}]}


def _artifact(path: str) -> dict[str, str]:
    if PurePath(path).is_absolute():
        return {"uri": PurePath(path).as_uri()}
    return {"uri": quote(os.fsencode(path)), "uriBaseId": _BASE}
