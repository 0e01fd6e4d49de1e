"""JUnit XML: a test suite a file, a test case a finding. A case fails where the finding fails the check."""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.patterns import pattern
from ddp_audit.report.text import finding_lines

_NOT_XML = pattern(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: AuditResult, *, strict: bool = False) -> str:
    """The document. With `strict` warnings are failures too; findings that do not fail are cases with an output."""
    failing = ("error", "warning") if strict else ("error",)
    root = ElementTree.Element("testsuites", name="ddp-audit")
    for error in result.errors:
        suite = _suite(root, error.path, 1, errors=1)
        case = _case(suite, "could be audited", error.path, error.line)
        _tell(case, "error", error.message, str(error))
    for path, group in groupby(result.findings, key=lambda finding: finding.span.path):
        findings = list(group)
        suite = _suite(root, path, len(findings), failures=sum(finding.severity in failing for finding in findings))
        for finding in findings:
            _finding(suite, finding, finding.severity in failing)
    if len(root) == 0:
        _case(_suite(root, "ddp-audit", 1), "no hazards found", "ddp-audit", None)
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.get(kind, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, name: str, tests: int, failures: int = 0, errors: int = 0) -> ElementTree.Element:
    return ElementTree.SubElement(
        root, "testsuite", name=_clean(name), tests=str(tests), failures=str(failures), errors=str(errors)
    )


def _case(suite: ElementTree.Element, name: str, path: str, line: int | None) -> ElementTree.Element:
    case = ElementTree.SubElement(suite, "testcase", name=_clean(name), classname=_clean(path), file=_clean(path))
    if line is not None:
        case.set("line", str(line))
    return case


def _finding(suite: ElementTree.Element, finding: Finding, fails: bool) -> None:
    span = finding.span
    case = _case(suite, f"{finding.code} {finding.name} {span.line}:{span.column}", span.path, span.line)
    text = "\n".join(finding_lines(finding))
    if fails:
        _tell(case, "failure", finding.message, text).set("type", finding.severity)
    else:
        ElementTree.SubElement(case, "system-out").text = _clean(text)


def _tell(case: ElementTree.Element, kind: str, message: str, text: str) -> ElementTree.Element:
    element = ElementTree.SubElement(case, kind, message=_clean(message))
    element.text = _clean(text)
    return element


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
