"""`new-rule` makes a rule that loads, with examples that hold and a case in the form of the others; and the public interface."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))
from case import read_program

from ddp_audit import api
from ddp_audit.cli import main
from ddp_audit.rule_loading import every_rule


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_rule_of_a_projects_own(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-rule", "acme001", "late-group"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["lint/late_group.py", "lint/test_late_group.py"]
    (rule,) = (rule for rule in every_rule(["lint"]) if rule.code == "ACME001")
    assert rule.name == "late-group"
    assert api.check_examples(rule, valid=[rule.good], invalid=[rule.bad]) == []
    compile(Path("lint/test_late_group.py").read_text(), "test", "exec")


def test_a_rule_of_the_package(empty: Path) -> None:
    Path("rules/ddp_audit_rules").mkdir(parents=True)
    assert main(["new-rule", "DDP299", "late-group"]) == 0
    compile(Path("rules/ddp_audit_rules/collectives/late_group.py").read_text(), "rule", "exec")
    case = Path("tests/cases/ddp299/late_group")
    assert sorted(path.name for path in case.iterdir()) == ["alike_one.py", "alike_two.py", "bad.py", "fixed.py"]
    bad = read_program(case / "bad.py")
    ((code, line),) = bad.expects
    assert code == "DDP299" and "barrier" in bad.path.read_text().splitlines()[line - 1]
    assert not read_program(case / "fixed.py").expects


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["DDP401", "some-name"], "the code DDP401 is taken by rank0-forward-through-wrapper"),
        (["ACME001", "rank-guarded-collective"], "the name rank-guarded-collective is taken by DDP201"),
        (["401", "some-name"], "is not a code"),
        (["ACME001", "../name"], "is not a name"),
    ],
)
def test_what_cannot_be_made(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-rule", *words]) == 2
    assert said in capsys.readouterr().err


def test_nothing_is_written_over(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lint").mkdir()
    Path("lint/late_group.py").write_text("mine")
    assert main(["new-rule", "ACME001", "late-group"]) == 2
    assert "exists already" in capsys.readouterr().err and Path("lint/late_group.py").read_text() == "mine"


def test_every_public_name_is_there() -> None:
    assert [name for name in api.__all__ if not hasattr(api, name)] == []
    assert set(api._HOMES) | {"compare", "open_trace"} == set(api.__all__)
    assert set(api.__all__) <= set(dir(api))
    with pytest.raises(AttributeError):
        _ = api.no_such_name


def test_a_trace_is_opened_and_compared(empty: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from generated_traces import generate

    generate(empty / "trace", 4, 50, "size", 2)
    found = api.compare(api.open_trace(empty / "trace"))
    assert found.verdict == "diverged" and found.divergences[0].kind == "size"
    with pytest.raises(api.TraceError):
        api.open_trace(empty / "nowhere")
