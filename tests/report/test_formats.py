"""SARIF, GitHub annotations and the terminal report of one result."""

from __future__ import annotations

import io
import json

import pytest

from ddp_audit.audit import AuditResult
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.report import github, sarif, terminal
from ddp_audit.source.files import SourceError


@pytest.fixture
def result() -> AuditResult:
    lines = ["import torch", "if rank == 0:", "    model(", "        x", "    )", ""]
    finding = Finding(
        "DDP401",
        "rank0-forward-through-wrapper",
        "warning",
        "likely",
        Span("my dir/train.py", 3, 5, 3, 11),
        "Rank 0 runs 1 buffer broadcast more, 100% of the time.",
        "First line.\nSecond: line.",
        [Related("my dir/train.py", 2, "guard", "only rank 0 enters"), Related("model.py", 9, "buffer", "the mask")],
        Fix("unsafe", "evaluate through model.module"),
        "confirmed",
        "model(",
    )
    long = Finding("DDP201", "rank-guarded-collective", "error", "certain", Span("/abs/x.py", 1, 1, 4, 2), "It hangs.")
    return AuditResult(
        looked_at={"one.py", "two.py"},
        findings=[finding, long],
        errors=[SourceError("broken.py", 3, "invalid syntax"), SourceError("nowhere", None, "no such file or directory")],
        suppressed=1,
        notes=["W = 8"],
        sources={"my dir/train.py": lines},
    )


def test_sarif(result: AuditResult) -> None:
    document = json.loads(sarif.render(result))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 3
    first, second = run["results"]
    assert first["level"] == "warning"
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "my%20dir/train.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 11}
    steps = first["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [step["location"]["physicalLocation"]["region"]["startLine"] for step in steps] == [2, 9, 3]
    assert first["properties"] == {"confidence": "likely", "verdict": "confirmed"}
    assert second["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///abs/x.py"}
    assert first["partialFingerprints"]["ddpAudit/v1"] != second["partialFingerprints"]["ddpAudit/v1"]


def test_github(result: AuditResult) -> None:
    lines = github.render(result).splitlines()
    assert lines[0] == "::error file=broken.py,line=3,title=ddp-audit::invalid syntax"
    assert lines[1] == "::error file=nowhere,title=ddp-audit::no such file or directory"
    assert lines[2].startswith(
        "::warning file=my dir/train.py,line=3,endLine=3,col=5,endColumn=11,title=DDP401 rank0-forward-through-wrapper::"
    )
    assert "100%25 of the time. [likely, confirmed]%0Aguard: my dir/train.py:2: only rank 0 enters%0A" in lines[2]
    assert "Second: line." in lines[2]
    assert lines[3].startswith("::error file=/abs/x.py,line=1,endLine=4,title=DDP201 rank-guarded-collective::It hangs.")
    assert len(lines) == 5


def test_terminal(result: AuditResult) -> None:
    stream = io.StringIO()
    terminal.show(result, stream, width=100, with_statistics=True)
    text = stream.getvalue()
    assert "\x1b" not in text
    lines = [line.rstrip() for line in text.splitlines()]
    place = lines.index("     3 |     model(")
    assert lines[place + 1] == "       |     ^^^^^^"
    assert "     2 | if rank == 0:" in lines
    assert any(line.strip() == "guard: only rank 0 enters" for line in lines)
    assert any("evaluate through model.module (unsafe fix)" in line for line in lines)
    assert "error broken.py:3: invalid syntax" in lines
    assert lines[-1] == "1 error and 1 warning in 2 files; 1 suppressed; 2 errors kept the audit from being whole."
