"""SARIF, GitHub annotations and the terminal report of one result."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes, urljoin, urlsplit
from xml.etree import ElementTree

import pytest

from ddp_audit import __version__
from ddp_audit.audit import AuditResult
from ddp_audit.cli import main
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.report import concise, full, github, gitlab, junit, sarif, summary, text
from ddp_audit.rule import load_rules
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
        files_read={"one.py", "two.py"},
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
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{Path.cwd().as_uri()}/"
    assert first["partialFingerprints"]["ddpAudit/v1"] != second["partialFingerprints"]["ddpAudit/v1"]


def test_github(result: AuditResult) -> None:
    lines = github.render(result).splitlines()
    assert lines[0] == "::error file=broken.py,line=3,title=ddp-audit::invalid syntax"
    assert lines[1] == "::error file=nowhere,title=ddp-audit::no such file or directory"
    assert lines[2].startswith("::error file=/abs/x.py,line=1,endLine=4,title=DDP201 rank-guarded-collective::It hangs.")
    assert lines[3].startswith(
        "::warning file=my dir/train.py,line=3,endLine=3,col=5,endColumn=11,title=DDP401 rank0-forward-through-wrapper::"
    )
    assert "100%25 of the time. [likely, confirmed]%0Aguard: my dir/train.py:2: only rank 0 enters%0A" in lines[3]
    assert "Second: line." in lines[3] and "%0AFix: evaluate through model.module" in lines[3]
    assert len(lines) == 5


def test_full(result: AuditResult) -> None:
    stream = io.StringIO()
    full.show(result, stream, width=100, with_statistics=True)
    text = stream.getvalue()
    assert "\x1b" not in text
    lines = [line.rstrip() for line in text.splitlines()]
    place = lines.index("     3 |     model(")
    assert lines[place + 1] == "       |     ^^^^^^"
    assert "  1 model.py:9        the mask" in lines and "  2 my dir/train.py:2 only rank 0 enters: if rank == 0:" in lines
    assert any("evaluate through model.module (--fix --unsafe-fixes)" in line for line in lines)
    assert "error: broken.py:3: invalid syntax" in lines
    assert lines[-1] == "1 error and 1 warning in 2 files; 1 suppressed; 2 files could not be audited."


def test_sarif_describes_the_rules_that_were_hit_and_no_others(result: AuditResult) -> None:
    result.rules = {rule.code: rule for rule in load_rules()}
    (run,) = json.loads(sarif.render(result))["runs"]
    driver = run["tool"]["driver"]
    assert (driver["version"], driver["semanticVersion"]) == (__version__, __version__)
    assert driver["informationUri"].startswith("https://")
    assert [rule["id"] for rule in driver["rules"]] == ["DDP201", "DDP401"]
    assert [rule["helpUri"].endswith(f"/rules/{rule['id']}/") for rule in driver["rules"]] == [True, True]
    for rule in driver["rules"]:  # the page is there once
        assert rule["helpUri"] in rule["help"]["text"] and len(rule["help"]["text"]) < 600 < len(rule["help"]["markdown"])
    assert [driver["rules"][one["ruleIndex"]]["id"] for one in run["results"]] == ["DDP401", "DDP201"]


def check_junit(document: str) -> ElementTree.Element:
    """What the schema of Ant's JUnit tasks asks for, element by element. Gives the root."""
    root = ElementTree.fromstring(document.encode("utf-8"))
    assert (root.tag, root.attrib) == ("testsuites", {})
    for number, suite in enumerate(root):
        whole = {"id", "tests", "failures", "errors"}
        assert suite.tag == "testsuite" and suite.attrib.keys() == whole | {"name", "package", "timestamp", "hostname", "time"}
        assert all(re.fullmatch(r"[0-9]+", suite.attrib[key]) for key in whole) and suite.get("id") == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        assert suite.get("name") and suite.get("hostname") and float(suite.attrib["time"]) >= 0
        first, *cases, out, err = suite
        assert (first.tag, out.tag, err.tag) == ("properties", "system-out", "system-err")
        assert all(one.tag == "property" and one.attrib.keys() == {"name", "value"} for one in first)
        for case in cases:
            assert case.tag == "testcase" and case.attrib.keys() == {"name", "classname", "time"}
            assert len(case) <= 1
            for fault in case:
                assert fault.tag in ("failure", "error") and fault.attrib.keys() == {"message", "type"} and not len(fault)
        for kind, tag in (("failures", "failure"), ("errors", "error")):
            assert int(suite.attrib[kind]) == sum(case.find(tag) is not None for case in cases)
        assert int(suite.attrib["tests"]) == len(cases)
    return root


@pytest.mark.parametrize("strict", [False, True])
def test_junit(result: AuditResult, strict: bool) -> None:
    root = check_junit(junit.render(result, strict=strict))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    hit = cases["DDP401 rank0-forward-through-wrapper 3:5"]
    assert (hit.find("failure") is not None) == strict
    outputs = [out.text or "" for out in root.iter("system-out")]
    assert any("DDP401 warning" in text and "    Fix: evaluate through model.module" in text for text in outputs) != strict
    assert cases["DDP201 rank-guarded-collective 1:1"].find("failure") is not None
    assert check_junit(junit.render(AuditResult(files_read={"a.py"}))).find("testsuite/testcase").get("name") == "no hazards found"


ODD = [
    "a b.py",
    "c:\\d,e%20.py",
    "line\nend\r.py",
    "\x01\x1b[31m\x7f.py",
    "\udcff\udc80.py",
    "\U0001f600<&\"'>].py",
    "::error::x.py",
    "<stdin>",
]


@pytest.mark.parametrize("path", ODD)
def test_every_format_holds_any_path_and_text(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    word = f"\x00\x0b\ufffe {path}"
    span = Span(path, 1, 1, 1, 2)
    finding = Finding("DDP201", "name", "error", "likely", span, word, "Why.", [Related(path, 1, "guard", word)], Fix("safe", word))
    result = AuditResult(findings=[finding], errors=[SourceError(path, 1, word)], notes=[word], files_read={path})
    (run,) = json.loads(sarif.render(result))["runs"]
    where = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    address = urljoin(run["originalUriBaseIds"][where["uriBaseId"]]["uri"], where["uri"])
    assert not set(where["uri"]) & set(" :,\n\\<")
    assert unquote_to_bytes(urlsplit(address).path) == os.fsencode(tmp_path / path)
    for line in github.render(result).removesuffix("\n").split("\n"):
        command, properties, _ = re.fullmatch(r"::(error|notice) (.*?)::(.*)", line, re.DOTALL).groups()
        pairs = dict(pair.split("=", 1) for pair in properties.split(","))
        if command == "error":
            for escape, letter in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
                pairs["file"] = pairs["file"].replace(escape, letter)
            assert pairs["file"] == path
    assert len(github.render(result).split("\n")) == 4
    root = check_junit(junit.render(result))
    assert len(list(root.iter("testcase"))) == 2
    assert json.loads(gitlab.render(result))[0]["location"]["path"] == path
    assert len(concise.render(result).splitlines()) == 4 and len(text.render(result).split("\n")) == 8
    stream = io.StringIO()
    full.show(result, stream)
    for shown in (text.render(result), stream.getvalue()):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    rows = [line for line in github.summary(result).split("\n") if line.startswith("|")]
    assert len(rows) == 4 and all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)


def test_the_summary_goes_where_github_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "import torch.distributed as dist\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    Path("train.py").write_text(script)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    for _ in range(2):  # the second run could come from the cache
        assert main(["check", "train.py", "--format", "github", "--select", "DDP201"]) == 1
    assert main(["check", "train.py", "--format", "text"]) == 1
    said = (tmp_path / "summary.md").read_text()
    assert said.startswith("before\n### ddp-audit\n")
    assert said.count("| error | DDP201 rank-guarded-collective | train.py:4:5 | Only rank 0 can") == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "nowhere" / "summary.md"))
    capsys.readouterr()
    assert main(["check", "train.py", "--format", "github"]) == 1
    assert "GITHUB_STEP_SUMMARY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("errors", "files", "said"),
    [
        (["gone.py"], 0, "No file was audited: 1 path could not be read or parsed."),
        (["a.py", "b.py", "b.py"], 0, "No file was audited: 2 paths could not be read or parsed."),
        ([], 0, "No file was audited: every path is excluded."),
        ([], 2, "No hazards found in 2 files."),
        (["a.py"], 1, "No hazards found in 1 file; 1 file could not be audited."),
    ],
)
def test_the_last_line_says_what_happened(errors: list[str], files: int, said: str) -> None:
    result = AuditResult(errors=[SourceError(path, None, "no") for path in errors], files_read=set(map(str, range(files))))
    assert summary.closing_line(result) == said


def test_a_document_is_shown_with_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n")
    Path("README.md").write_text("# Train\n\nTrain on two GPUs:\n\n    torchrun --nproc_per_node=4 train.py\n")
    shown = []
    for _ in range(2):  # the second time from the cache
        main(["check", "train.py", "--format", "terminal", "--min-confidence", "possible"])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    lines = [line.rstrip() for line in shown[0].splitlines()]
    heads = [number for number, line in enumerate(lines) if line.startswith("README.md:")]
    assert heads, shown[0]
    source = Path("README.md").read_text().splitlines()
    for number in heads:
        line = int(lines[number].split(":")[1])
        assert f"{line:>6} | {source[line - 1]}" in lines[number:]
    assert not any(one == two == "" for one, two in itertools.pairwise(lines)), "two blank lines"
    assert any("torchrun --nproc_per_node=4" in line for line in lines)


def test_a_place_whose_file_cannot_be_read_has_its_number(result: AuditResult) -> None:
    stream = io.StringIO()
    full.show(result, stream, width=100)
    assert "model.py:9        the mask" in stream.getvalue()
