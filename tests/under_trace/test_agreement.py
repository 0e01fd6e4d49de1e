"""Scripts under trace: a few that are run, and how what the runner sees becomes a class and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run
from run import AGREES, DISAGREES, EARLY, NOT_RUN, AgreementError, Outcome, Script

SAMPLE = ("several_files/train", "raises_on_one_rank")


def test_each_script_says_how_it_ends_and_has_a_standing() -> None:
    scripts = list(run.own_scripts())
    assert len(scripts) >= 60
    known = run.standing()
    assert {script.name for script in scripts} <= set(known)
    assert set(known.values()) <= {AGREES, EARLY, DISAGREES, NOT_RUN}
    assert sum(not script.ends.startswith("completes") for script in scripts) >= 10


def test_a_script_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("# ends: some day\n")
    with pytest.raises(AgreementError, match="says not how it ends"):
        run.read_script(path)


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
    monkeypatch.setattr(run, "_run", lambda script, folder: found)
    outcome = run.trace(Script(tmp_path / "a.py", "a", "torchrun a.py", ends), tmp_path)
    assert outcome.result == AGREES
    assert outcome.wrong.startswith(said) if said else not outcome.wrong


def test_only_what_got_worse_fails(capsys: pytest.CaptureFixture[str]) -> None:
    before = {"a": EARLY, "b": AGREES}
    assert run.report([Outcome("a", AGREES), Outcome("b", AGREES), Outcome("new", DISAGREES, "why")], before) == 0
    assert run.report([Outcome("b", EARLY, "a loop")], before) == 1
    assert run.report([Outcome("a", EARLY, "", "completes, and ended so: ..")], before) == 1
    assert "was: agrees" in capsys.readouterr().out


@pytest.mark.traced
@pytest.mark.parametrize("name", SAMPLE)
def test_prediction_and_record_agree(name: str, tmp_path: Path) -> None:
    script = next(script for script in run.own_scripts() if script.name == name)
    outcome = run.trace(script, tmp_path)
    assert (outcome.result, outcome.wrong) == (AGREES, ""), outcome
