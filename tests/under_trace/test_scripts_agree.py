"""Scripts under trace: a few that are run, and how what the runner sees becomes a class and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import under_trace
from under_trace import AGREES, DISAGREES, EARLY, NOT_RUN, AgreementError, Outcome, Script

SAMPLE = ("several_files/train", "raises_on_one_rank")


def test_each_script_says_how_it_ends_and_has_a_standing() -> None:
    scripts = list(under_trace.own_scripts())
    assert len(scripts) >= 60
    known = under_trace.standing()
    assert {script.name for script in scripts} <= set(known)
    assert set(known.values()) <= {AGREES, EARLY, DISAGREES, NOT_RUN}
    assert sum(not script.ends.startswith("completes") for script in scripts) >= 10


def test_a_script_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("# ends: some day\n")
    with pytest.raises(AgreementError, match="says not how it ends"):
        under_trace.read_script(path)


@pytest.mark.parametrize(
    ("ends", "ranks", "said"),
    [
        ("completes", [{"state": "exited", "code": 0}] * 2, ""),
        ("completes", [{"state": "exited", "code": 0}, {"state": "raised", "code": 1, "error": "ValueError: no"}], "completes"),
        ("completes", [], "completes"),
        ("hangs", [{"state": "raised", "code": 1, "error": "RuntimeError: Timed out waiting"}, {"state": "exited", "code": 0}], ""),
        ("hangs", [{"state": "exited", "code": 0}] * 2, "hangs"),
        ("raises ValueError", [{"state": "raised", "code": 1, "error": "ValueError: no"}], ""),
        ("raises ValueError", [{"state": "raised", "code": 1, "error": "KeyError: no"}], "raises ValueError"),
    ],
)
def test_a_run_is_held_against_the_header(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str, ranks: list[dict[str, object]], said: str
) -> None:
    found = {"ranks": dict(enumerate(ranks)), "prediction": {"result": "agreed-to-end", "why": None}}
    monkeypatch.setattr(under_trace, "_run", lambda script, folder: found)
    outcome = under_trace.trace(Script(tmp_path / "a.py", "a", "torchrun a.py", ends), tmp_path)
    assert outcome.result == AGREES
    assert outcome.wrong.startswith(said) if said else not outcome.wrong


def test_only_what_got_worse_fails(capsys: pytest.CaptureFixture[str]) -> None:
    before = {"a": EARLY, "b": AGREES}
    assert under_trace.report([Outcome("a", AGREES), Outcome("b", AGREES), Outcome("new", DISAGREES, "why")], before) == 0
    assert under_trace.report([Outcome("b", EARLY, "a loop")], before) == 1
    assert under_trace.report([Outcome("a", EARLY, "", "completes, and ended so: ..")], before) == 1
    assert "was: agrees" in capsys.readouterr().out


@pytest.mark.traced
@pytest.mark.parametrize("name", SAMPLE)
def test_prediction_and_record_agree(name: str, tmp_path: Path) -> None:
    script = next(script for script in under_trace.own_scripts() if script.name == name)
    outcome = under_trace.trace(script, tmp_path)
    assert (outcome.result, outcome.wrong) == (AGREES, ""), outcome


ROW = "owner/name\tabc\tsub/a.py\t--steps 2\t\tcompletes"


def _table(monkeypatch: pytest.MonkeyPatch, folder: Path, *rows: str) -> None:
    (folder / "public.tsv").write_text("\n".join(["\t".join(under_trace.COLUMNS), *rows]) + "\n")
    monkeypatch.setattr(under_trace, "PUBLIC", folder / "public.tsv")


def test_the_public_scripts_say_how_they_end_and_have_a_standing() -> None:
    rows = under_trace._public_rows()
    assert len(rows) >= 10
    assert all(len(row["commit"]) == 40 and row["ends"].split(" ")[0] in {"completes", "hangs", "raises"} for row in rows)
    assert {f"{row['repository']}/{row['path']}" for row in rows} <= set(under_trace.standing())


def test_a_public_script_is_found_by_its_checkout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _table(monkeypatch, tmp_path, ROW, ROW.replace("name", "other"))
    path = tmp_path / "owner__name" / "sub" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert under_trace.public_scripts(tmp_path) == [
        Script(path, "owner/name/sub/a.py", f"{under_trace.LAUNCH} a.py --steps 2", "completes")
    ]
    assert capsys.readouterr().err == f"left out, not in {tmp_path}: owner/other/sub/a.py\n"


@pytest.mark.parametrize(
    ("rows", "said"),
    [(None, "cannot be read"), ([ROW], "has no script of public.tsv"), (["owner/name\tabc"], "does not have the columns")],
)
def test_what_is_missing_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, rows: list[str] | None, said: str
) -> None:
    _table(monkeypatch, tmp_path, *(rows or ()))
    if rows is None:
        (tmp_path / "public.tsv").unlink()
    assert under_trace.main(["--corpus", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
