"""The JSON of `check`: real reports and filled ones are valid by the schema in the package, and the cache keeps all of it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.cache.files import document_of, finding_of
from ddp_audit.cli import main
from ddp_audit.findings import Finding, Fix, Option, Place, Related, Span
from ddp_audit.outcome import FUNCTIONS_ONLY, IN_PART, REACHED, AuditResult, Coverage, NotFollowed, Script
from ddp_audit.report import json as report
from ddp_audit.source.problems import SourceError

jsonschema = pytest.importorskip("jsonschema")

SCRIPT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
if dist.get_rank() == 0:
    dist.barrier()
dist.barrier()  # ddp-audit: ignore[DDP201] nothing is here
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(files("ddp_audit.report").joinpath("schemas", "check.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(loaded)
    return loaded


@pytest.fixture
def filled() -> AuditResult:
    finding = Finding(
        "DDP401",
        "rank0-forward-through-wrapper",
        "warning",
        "likely",
        Span("nb.ipynb", 3, 5, 3, 11),
        "Rank 0 calls the wrapper alone.",
        related=[Related("nb.ipynb", 2, "guard", "only rank 0 enters", 4), Related("model.py", 9, "buffer", "the mask")],
        fix=Fix("unsafe", "evaluate through model.module"),
        verdict="confirmed",
        option=Option("use_eval", False, True),
        places=[Place("nb.ipynb", 3, 5, 4), Place("other.py", 7)],
        cell=4,
    )
    return AuditResult(
        findings=[finding],
        errors=[SourceError("nb2.ipynb", 1, "invalid syntax", 2), SourceError("nowhere", None, "no such file or directory")],
        notes=["W = 8"],
        files_read={"nb.ipynb"},
        coverage=Coverage(
            [Script("train.py", REACHED, IN_PART), Script("part.ipynb", ("step",), FUNCTIONS_ONLY)],
            [
                NotFollowed("train.py", 3, "load_plugin() is not in the project"),
                NotFollowed("part.ipynb", 3, "what sync() does", cell=2),
                NotFollowed("train.py", None, "calls nested deeper than 14"),
            ],
        ),
        predicted={"outcome": "hangs", "findings": [finding.fingerprint]},
    )


@pytest.mark.parametrize("words", [["train.py"], ["train.py", "broken.py", "gone.py"], ["train.py", "--explain-run"], ["."]])
def test_real_reports_are_valid(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], schema: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("broken.py").write_text("import torch.distributed\nx = (\n")
    cells = [{"cell_type": "code", "source": ["%time\n", *SCRIPT.splitlines(keepends=True)], "metadata": {}}]
    Path("nb.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    main(["check", "--format", "json", *words])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema)
    assert {"DDP201", "DDP903"} <= {finding["code"] for finding in document["findings"]}


def test_a_report_with_everything_is_valid(filled: AuditResult, schema: dict[str, Any]) -> None:
    document = json.loads(report.render(filled, {"outcome": "hangs"}))
    jsonschema.validate(document, schema)
    assert document["findings"][0]["option"] == {"name": "use_eval", "default": False, "value": True}
    assert document["findings"][0]["places"][0] == {"path": "nb.ipynb", "cell": 4, "line": 3, "column": 5}
    what = "load_plugin() is not in the project"
    assert document["coverage"]["not_followed"][0] == {"path": "train.py", "cell": None, "line": 3, "what": what}
    assert document["coverage"]["complete"] is False
    assert document["predicted"]["outcome"] == "hangs"
    assert document["errors"][0] == {"path": "nb2.ipynb", "cell": 2, "line": 1, "message": "invalid syntax"}


WAYS: list[list[str | int]] = [[], ["findings", 0], ["findings", 0, "related", 0], ["findings", 0, "places", 0], ["coverage"]]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_schema_knows_every_key_and_no_other(way: list[str | int], filled: AuditResult, schema: dict[str, Any]) -> None:
    document = json.loads(report.render(filled))
    owner = document
    for step in way:
        owner = owner[step]
    whole = dict(owner)
    changes = [{k: v for k, v in whole.items() if k != key} for key in whole if key not in ("notes", "verdict", "verdict_reason")]
    for changed in [*changes, {**whole, "another": 1}]:
        owner.clear()
        owner.update(changed)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema)


def test_the_cache_keeps_a_finding_whole(filled: AuditResult) -> None:
    (finding,) = filled.findings
    assert finding_of(json.loads(json.dumps(document_of(finding)))) == finding


def test_rules_and_findings_use_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 2
    assert all(rule["severity"] in ("error", "warning", "info") and "level" not in rule for rule in document["rules"])
