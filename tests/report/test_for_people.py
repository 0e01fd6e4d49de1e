"""The reports that people read: what is shown first, what is folded, and that one cause is one finding."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from ddp_audit.audit import AuditResult
from ddp_audit.cli import main
from ddp_audit.findings import Finding, Fix, Related, Span, gather_places
from ddp_audit.report import azure, concise, full, github, grouped, json_lines, markdown, rdjson
from ddp_audit.report.causes import causes_of

LINES = ["import torch", "if rank == 0:", "    evaluate(model)", "model = DDP(net)", "x = 1", "y = 2"]


def finding(code: str, severity: str, line: int, message: str, cause: str = "", path: str = "train.py") -> Finding:
    span = Span(path, line, 1, line, 4)
    return Finding(
        code, f"name-{code}", severity, "likely", span, message, "Why it is so.", fix=Fix("unsafe", "do it"), cause=cause
    )


@pytest.fixture
def result() -> AuditResult:
    found = [
        finding("DDP604", "info", 1, "An info."),
        finding("DDP505", "warning", 5, "The check fails.", cause="40"),
        finding("DDP401", "error", 3, "It hangs."),
        finding("DDP505", "error", 6, "The launch fails.", cause="40"),
        finding("DDP505", "error", 2, "The launch fails.", cause="40", path="README.md"),
        finding("DDP604", "info", 2, "Another info."),
    ]
    found[2].related = [
        Related("train.py", 3, "forward", "evaluate(model)"),
        Related("train.py", 2, "guard", "rank == 0: only rank 0 enters"),
        Related("train.py", 4, "wrap", "the DDP wrapper that is called"),
    ]
    found.sort(key=lambda one: one.sort_key)
    gather_places(found)
    return AuditResult(findings=found, files_read={"train.py"}, sources={"train.py": LINES, "README.md": ["a", "b"]})


def shown(result: AuditResult, width: int = 80, **ways: bool) -> list[str]:
    stream = io.StringIO()
    full.show(result, stream, width=width, **ways)
    return stream.getvalue().splitlines()


def test_the_gravest_comes_first_and_infos_are_one_line(result: AuditResult) -> None:
    lines = shown(result)
    heads = [line for line in lines if re.match(r"\S+:\d+:\d+  \w+ DDP", line)]
    assert [head.split()[1:3] for head in heads] == [["error", "DDP505"], ["error", "DDP401"]]
    assert [line for line in lines if "info" in line] == [
        "2 infos not shown (--show info): DDP604 name-DDP604 (2)",
        "2 errors and 2 infos at 6 places in 1 file.",
    ]
    assert "Why it is so." not in "".join(lines)
    verbose = shown(result, verbose=True)
    assert sum("Why it is so." in line for line in verbose) == 4 and any("An info." in line for line in verbose)
    assert any("An info." in line for line in shown(result, with_infos=True))


def test_one_cause_is_one_finding_with_its_places(result: AuditResult) -> None:
    cause = next(one for one in causes_of(result.findings) if one.finding.code == "DDP505")
    assert (cause.finding.place, [one.place for one in cause.others]) == ("README.md:2", ["train.py:5", "train.py:6"])
    assert "  also at train.py:5, train.py:6" in shown(result)
    places = [
        {"path": path, "cell": None, "line": line, "column": 1}
        for path, line in (("README.md", 2), ("train.py", 5), ("train.py", 6))
    ]
    told = [json.loads(line) for line in json_lines.render(result).splitlines()]
    assert [one["places"] for one in told if one["code"] == "DDP505"] == [places] * 3
    assert [one["places"] for one in told if one["code"] != "DDP505"] == [None] * 3


def test_the_way_to_a_place_is_numbered_in_the_order_of_the_flow(result: AuditResult) -> None:
    steps = [line for line in shown(result) if re.match(r"  \d ", line)]
    assert steps == [
        "  1 train.py:4 the DDP wrapper that is called: model = DDP(net)",
        "  2 train.py:2 only rank 0 enters: if rank == 0:",
    ]


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_is_wider_than_asked_or_ends_in_blanks(result: AuditResult, width: int) -> None:
    result.findings[0].message = "A word and another word " * 12
    lines = shown(result, width, verbose=True)
    assert max(map(len, lines)) <= width and not any(line.endswith(" ") for line in lines)


def test_a_code_is_a_link_where_there_are_colours(result: AuditResult, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddp_audit.rule import load_rules

    result.rules = {rule.code: rule for rule in load_rules()}
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b]8;" in "".join(shown(result)) and "rules/DDP401/" in "".join(shown(result))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "".join(shown(result))


def test_where_nothing_is_found_it_says_what_was_looked_at() -> None:
    run = {"path": "train.py", "world_size": 2, "outcome": "completes"}
    lines = shown(AuditResult(files_read={"train.py", "model.py"}, predicted={"runs": [run]}))
    assert lines == [
        "Looked at: model.py, train.py",
        "Predicted run of train.py on 2 ranks: completes",
        "No hazards found in 2 files.",
    ]


def test_concise_and_grouped(result: AuditResult) -> None:
    lines = concise.render(result).splitlines()
    assert lines[0] == "README.md:2:1: error DDP505 The launch fails. (also at train.py:5, train.py:6)"
    assert len(lines) == 4 and len(concise.render(result, quiet=True).splitlines()) == 2
    assert len(concise.render(result, with_infos=True).splitlines()) == 5
    groups = [line for line in grouped.render(result, with_infos=True).splitlines() if line.startswith("DDP")]
    assert groups == ["DDP505 name-DDP505: 1 error", "DDP401 name-DDP401: 1 error", "DDP604 name-DDP604: 2 infos"]


def test_services_get_one_annotation_a_cause_and_no_infos(result: AuditResult) -> None:
    for text, command in ((github.render(result), "::error "), (azure.render(result), "##vso[task.logissue type=error;")):
        assert [line.startswith(command) for line in text.splitlines()] == [True, True, False], text
    result.findings[0].message = "100% ; ]\n##vso[x]"
    hostile = azure.render(result).splitlines()
    assert len(hostile) == 3 and "100%AZP25" in hostile[0]


def test_rdjson_and_markdown(result: AuditResult) -> None:
    document = json.loads(rdjson.render(result))
    assert [one["severity"] for one in document["diagnostics"]].count("ERROR") == 3 and document["source"]["name"] == "ddp-audit"
    assert document["diagnostics"][0]["location"]["range"]["start"] == {"line": 2, "column": 1}
    result.findings[-1].message = "Tables | and <b>tags</b> and `ticks`"
    text = markdown.render(result)
    assert text.count("\n## error: DDP") == 2 and "2. `train.py:2` only rank 0 enters: `if rank == 0:`" in text
    assert "<b>" not in text and "\n| DDP604" in text and "**Fix:** do it" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "'chekc' is not a command, a file or a folder; did you mean 'check'?"),
        (["check", "x.py", "--selct", "DDP1"], "did you mean '--select'?"),
        (["check", "x.py", "--format", "jsn"], "did you mean 'json'?"),
        (["check", "x.py", "--select", "DDP999"], "did you mean DDP"),
        (["check", "x.py", "--select", "rank-guarded-colective"], "did you mean rank-guarded-collective?"),
        (["diff", "x", "--fromat", "json"], "did you mean '--format'?"),
    ],
)
def test_what_is_mistyped_is_named(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text("import torch\n")
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_severities_are_filtered_and_colours_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "import os, torch.distributed as dist\nos.environ['NCCL_IB_DISABLE'] = '1'\ndist.init_process_group('gloo')\n"
    script += "if dist.get_rank() == 0:\n    dist.barrier()\n"
    Path("train.py").write_text(script)

    def told(*words: str) -> str:
        main(["check", "train.py", *words])
        return capsys.readouterr().out

    assert "1 info not shown" in told() and "info" not in told("--min-severity", "error")
    assert [one["severity"] for one in json.loads(told("--format", "json", "--min-severity", "warning"))["findings"]] == ["error"]
    assert len(told("-q").splitlines()) == 1 and told("-q").startswith("train.py:5:5: error DDP201")
    assert "\x1b" in told("--color", "always") and "\x1b" not in told("--color", "never")
