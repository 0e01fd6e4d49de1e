"""What holds for an audit of any file whatever: no exception, findings in order and inside the file, every report well formed, fixes and
suppressions that do what they say.

`uphold` raises where it does not hold; what it raises is an error in ddp-audit.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

from ddp_audit.audit import AuditResult, Options, audit
from ddp_audit.cache.entries import cached_audit
from ddp_audit.cli.explained import explained
from ddp_audit.cli.reporting import Ways, write_report
from ddp_audit.findings import CONFIDENCES, SEVERITIES, Finding
from ddp_audit.fix.rounds import apply_fixes
from ddp_audit.fix.text import Edit, applied
from ddp_audit.rule import load_rules
from ddp_audit.server.session import keeping_changes
from ddp_audit.source.config import FORMATS
from ddp_audit.source.files import display_path

ALONE = str(Path("/no-such-folder").absolute())  # imports of a file that seems to lie here lead nowhere
OPTIONS = Options(min_confidence="possible")
_RULES = load_rules()


def audited(path: str, overlay: Mapping[str, bytes]) -> AuditResult:
    """The audit of a path, with bytes in the place of files; an error of a rule comes out as it is."""
    with patch.dict(os.environ, {"DDP_AUDIT_DEBUG": "1"}):
        return audit([path], OPTIONS, rules=_RULES, overlay=overlay)


def uphold(data: bytes, path: str = f"{ALONE}/train.py") -> AuditResult:
    """Audits bytes as the file at an absolute path, and checks all that holds for every file. Raises what goes wrong."""
    result = audited(path, {path: data})
    _check_all(path, {path: data}, result)
    return result


def uphold_project(files: Mapping[str, bytes], after: Mapping[str, bytes], folder: Path) -> None:
    """The same for `train.py` and the modules that it imports, in an empty folder, and for the folder as a whole.

    Then the files become those of `after`: with the cache of the audits before, an audit comes to what it comes to without one.
    """
    write(files, folder)
    script = str(folder / "train.py")
    _check_all(script, {}, audited(script, {}))
    whole = audited(str(folder), {})
    _check_errors(whole)
    _check_findings(whole)
    _check_reports(whole, None, {})
    with patch.dict(os.environ, {"DDP_AUDIT_CACHE": str(folder.parent / "cache"), "DDP_AUDIT_DEBUG": "1"}):
        for now in (files, after):
            write(now, folder)
            for path in (script, str(folder)):
                assert _told(cached_audit([path], OPTIONS)) == _told(audited(path, {})), "the cache changes what is found"


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files by their paths below a folder, and removes the others."""
    for path in [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).as_posix() not in files]:
        path.unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _told(result: AuditResult) -> list[object]:
    return [[f.to_json() for f in result.findings], [str(e) for e in result.errors], result.notes, result.suppressed]


def _check_all(path: str, overlay: Mapping[str, bytes], result: AuditResult) -> None:
    _check_errors(result)
    _check_findings(result)
    _check_reports(result, path if not result.errors else None, overlay)
    if not result.errors and not path.endswith(".ipynb"):
        _check_fixes(path, overlay, result)
        for finding in result.findings[:3]:
            _check_suppression(path, overlay, result, finding)


def _check_errors(result: AuditResult) -> None:
    assert result.exit_code() == (2 if result.errors else int(any(f.severity == "error" for f in result.findings)))
    for error in result.errors:
        assert error.message and not {"\n", "\r"} & set(error.message), repr(error.message)
        assert "an error in ddp-audit" not in error.message, str(error)
        assert error.line is None or error.line >= 1, str(error)


def _check_findings(result: AuditResult) -> None:
    places = [(f.span.path, f.cell or 0, f.span.line, f.span.column, f.code) for f in result.findings]
    assert places == sorted(places), "findings are not in order"
    prints = [finding.fingerprint for finding in result.findings]
    assert len(set(prints)) == len(prints), "two findings have one fingerprint"
    for finding in result.findings:
        told = f"{finding.code} {finding.span}"
        assert finding.severity in SEVERITIES and finding.confidence in CONFIDENCES, told
        assert finding.message and "\n" not in finding.message, told
        span = finding.span
        assert (1, 1) <= (span.line, span.column) <= (span.end_line, span.end_column), told
        lines = result.lines_of(span.path, finding.cell)
        if lines:
            assert span.end_line <= len(lines), f"{told}: the file has {len(lines)} lines"
            assert span.column <= len(lines[span.line - 1]) + 1, f"{told}: the line is shorter"
            assert span.end_column <= len(lines[span.end_line - 1]) + 1, f"{told}: its last line is shorter"
        for related in finding.related:
            lines = result.lines_of(related.path, related.cell)
            assert related.line >= 1 and "\n" not in related.text, f"{told}: {related}"
            assert not lines or related.line <= len(lines), f"{told}: {related}"


def _check_reports(result: AuditResult, run_of: str | None, overlay: Mapping[str, bytes]) -> None:
    with patch.dict(os.environ, {"DDP_AUDIT_DEBUG": "1"}):
        run = None if run_of is None else explained([run_of], OPTIONS, overlay, result, result.rules)
    told: dict[str, str] = {}
    with redirect_stderr(io.StringIO()):
        for form in (name for name in FORMATS if name != "terminal"):
            stream = io.StringIO()
            with_run = run if form in ("json", "text") else None
            write_report(result, form, stream, Ways(statistics=True, verbose=True, infos=True), run=with_run)
            told[form] = stream.getvalue()
    document = json.loads(told["json"])
    assert len(document["findings"]) == len(result.findings) and len(document["errors"]) == len(result.errors)
    assert len(json.loads(told["sarif"])["runs"][0]["results"]) == len(result.findings)
    assert len(json.loads(told["gitlab"])) >= len(result.findings)
    ElementTree.fromstring(told["junit"])
    for text in told.values():
        text.encode()  # to a file, in UTF-8


def _check_fixes(path: str, overlay: Mapping[str, bytes], result: AuditResult) -> None:
    """What fixing leaves can be read and holds nothing more to mend."""
    if not any(f.fix is not None and f.fix.safety != "display-only" for f in result.findings):
        return
    once = apply_fixes(lambda texts: audited(path, texts), overlay, unsafe=True)
    assert not once.result.errors, str(once.result.errors[0])
    once.diff(display_path)
    again = apply_fixes(lambda texts: audited(path, texts), {**overlay, **once.after}, unsafe=True)
    assert not again.changed, "fixing what was fixed changes it once more"


def _check_suppression(path: str, overlay: Mapping[str, bytes], before: AuditResult, finding: Finding) -> None:
    """The comment that an editor offers keeps the finding quiet, and breaks nothing."""
    shown = finding.span.path
    if not shown.endswith(".py") or shown not in before.sources or finding.code.startswith("DDP9"):
        return
    text = "\n".join(before.sources[shown])
    change = keeping_changes(text, [finding]).get(0)
    if change is None:
        return
    new = applied(text, [Edit(change.start, change.end, tuple(change.text.splitlines(keepends=True)))])
    after = audited(path, {**overlay, str(Path(shown).absolute()): new.encode("utf-8")})
    if "coding" in "".join(text.split("\n")[:2]):
        return  # a coding comment says that the text is not UTF-8
    assert not after.errors, f"{finding.code}: the comment broke the file: {after.errors[0]}"

    def number(result: AuditResult) -> int:
        return sum((f.code, f.source_line) == (finding.code, finding.source_line) for f in result.findings)

    assert number(after) < number(before), f"{finding.code} {finding.span}: the comment on it does not suppress it"
