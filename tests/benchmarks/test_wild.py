"""First looks: the tables fit together, causes count once, and what changed is new, gone or moved."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "wild"))

import wild
from wild import Finding, Judged

HERE = wild.HERE


def finding(line: int, code: str = "DDP201", level: str = "error", path: str = "train.py") -> Finding:
    return Finding("owner/name", path, line, code, level)


@pytest.mark.parametrize("name", ["judgements.tsv", "missed.tsv", "findings.tsv"])
def test_tables_speak_of_known_repositories(name: str) -> None:
    known = {row["repository"] for row in wild.rows_of(HERE / "repositories.tsv")}
    rows = wild.rows_of(HERE / name)
    assert rows
    assert {row["repository"] for row in rows} <= known
    assert not [row for row in rows if None in row or None in row.values()], "a row has too many or too few columns"


def test_judgements_are_words_that_count() -> None:
    rows = wild.rows_of(HERE / "judgements.tsv")
    assert {row["judgement"] for row in rows} <= set(wild.JUDGEMENTS)
    assert {row["second"] for row in rows} <= {"", *wild.JUDGEMENTS}
    assert len({(r["repository"], r["path"], r["line"], r["code"]) for r in rows}) == len(rows)


def test_a_cause_counts_once_by_its_worst_finding() -> None:
    judgements = {
        finding(1)[:4]: Judged("true", "one", ""),
        finding(2)[:4]: Judged("wrong", "one", ""),
        finding(3)[:4]: Judged("true", "two", ""),
        finding(3, level="warning", code="DDP205")[:4]: Judged("arguable", "two", ""),
    }
    found = [finding(1), finding(2), finding(3), finding(3, "DDP205", "warning"), finding(4)]
    counts = wild.count(found, judgements)
    assert str(counts["error"]) == "1 / 0 / 1 + 1?"
    assert str(counts["warning"]) == "0 / 1 / 0"


def test_what_changed_is_new_gone_or_moved() -> None:
    before = [finding(1), finding(10), finding(20, "DDP301"), finding(5, level="warning", code="DDP205")]
    after = [finding(1), finding(12), finding(30, "DDP701"), finding(5, level="error", code="DDP205")]
    changes = wild.compare(before, after)
    assert changes.new == [finding(30, "DDP701")]
    assert changes.gone == [finding(20, "DDP301")]
    assert changes.moved == [
        (finding(5, "DDP205", "warning"), finding(5, "DDP205", "error")),
        (finding(10), finding(12)),
    ]
    assert list(wild.show(wild.compare(before, before))) == ["No finding changed since the last commit."]


def test_a_missed_hazard_is_named_by_one_of_its_codes_near_its_line() -> None:
    missed = {"repository": "owner/name", "path": "train.py", "line": "10", "code": "DDP203 DDP205"}
    assert wild.named_now(missed, [finding(12, "DDP205")])
    assert not wild.named_now(missed, [finding(20, "DDP205"), finding(10, "DDP701"), finding(10, "DDP205", path="other.py")])


def test_a_checkout_is_audited_and_its_processor_time_is_known(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    )
    audit = wild.audit(tmp_path, "owner/name")
    assert [f[1:] for f in audit.findings] == [("train.py", 4, "DDP201", "error")]
    assert audit.seconds > 0
    assert not audit.failure


def test_a_report_that_is_none_is_a_failure() -> None:
    assert wild.read_report(io.BytesIO(b"Traceback"), "owner/name", 1.0, 1).failure
    infos = json.dumps({"findings": [{"path": "a.py", "line": 1, "code": "DDP604", "severity": "info"}]})
    assert wild.read_report(io.BytesIO(infos.encode()), "owner/name", 1.0, 0).findings == []


def test_proofs_are_judged_as_their_headers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(HERE.parents[1] / "tests" / "cases"))
    from case import read_program

    from ddp_audit.audit import Options, audit

    monkeypatch.chdir(HERE / "proofs")
    for path in sorted(Path().glob("*.py")):
        said = {(f.code, f.span.line) for f in audit([path.name], Options()).findings if f.severity in wild.LOUD}
        assert said == read_program(path).expects, path


def test_the_page_names_proofs_that_are_there() -> None:
    page = (HERE.parents[1] / "docs" / "found-in-the-wild.md").read_text(encoding="utf-8")
    for path in sorted((HERE / "proofs").glob("*.py")):
        assert f"`{path.name}`" in page
