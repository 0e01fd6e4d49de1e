"""JUnit XML: a test suite a file, a test case a finding. A case fails where the finding fails the check.

The document is valid against the schema of Ant's JUnit tasks, which other tools read too. That schema has no place of a case: the
place is in the case's name and in the text of its failure.
"""

from __future__ import annotations

import socket
from datetime import datetime, timezone
from itertools import groupby
from xml.etree import ElementTree

from ddp_audit.findings import Finding
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.outcome import AuditResult
from ddp_audit.report.summary import one_line
from ddp_audit.report.text import finding_lines

_NOT_XML = lazy_compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: AuditResult, *, strict: bool = False) -> str:
    """The document. With `strict` warnings are failures too; findings that do not fail are in the output of their suite."""
    failing = ("error", "warning") if strict else ("error",)
    root = ElementTree.Element("testsuites")
    for error in result.errors:
        suite = _suite(root, error.path, 1, errors=1)
        _fault(_case(suite, "could be audited", error.path), "error", "unreadable", error.message, str(error))
        _end(suite)
    for path, group in groupby(result.findings, key=lambda finding: finding.span.path):
        findings = list(group)
        suite = _suite(root, path, len(findings), failures=sum(finding.severity in failing for finding in findings))
        for finding in findings:
            case = _case(suite, f"{finding.code} {finding.name} {_position(finding)}", path)
            if finding.severity in failing:
                _fault(case, "failure", finding.severity, finding.message, _text(finding))
        _end(suite, [_text(finding) for finding in findings if finding.severity not in failing])
    if len(root) == 0:
        suite = _suite(root, "ddp-audit", 1)
        _case(suite, "no hazards found", "ddp-audit")
        _end(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, path: str, tests: int, failures: int = 0, errors: int = 0) -> ElementTree.Element:
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_clean(one_line(path)),
        package="ddp-audit",
        id=str(len(root)),
        timestamp=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname=_clean(socket.gethostname()) or "localhost",
        tests=str(tests),
        failures=str(failures),
        errors=str(errors),
        time="0",
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="file", value=_clean(path))
    return suite


def _end(suite: ElementTree.Element, output: list[str] | None = None) -> None:
    ElementTree.SubElement(suite, "system-out").text = _clean("\n".join(output or []))
    ElementTree.SubElement(suite, "system-err")


def _case(suite: ElementTree.Element, name: str, path: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", name=_clean(name), classname=_clean(one_line(path)), time="0")


def _fault(case: ElementTree.Element, element: str, kind: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, element, message=_clean(message), type=kind).text = _clean(text)


def _position(finding: Finding) -> str:
    """Line and column, in a notebook with the cell."""
    return finding.start.removeprefix(f"{finding.span.path}:")


def _text(finding: Finding) -> str:
    return "\n".join(map(one_line, finding_lines(finding)))


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
