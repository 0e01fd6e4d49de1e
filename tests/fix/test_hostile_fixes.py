"""Fixes in files that are no usual ones: nothing is changed, nothing is raised, and the other files have their fixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit import budget
from ddp_audit.audit import audit
from ddp_audit.fix.rounds import apply_fixes, edits_of
from ddp_audit.fix.tree import FixNotApplicable, Tree
from ddp_audit.rule import load_rules
from ddp_audit.server.session import changes_of
from ddp_audit.source.problems import said_of

BAD = {rule.code: rule for rule in load_rules()}["DDP302"].bad
DEEP = "x = 1" + " + 1" * 3_000 + "\n"
CHAIN = "x = k" + ".a()" * 1_500 + "\n"
LARGE = "# what is not read\n" * 20_000


@pytest.mark.parametrize(
    ("tail", "why"), [(DEEP, "nested too deeply"), (CHAIN, "nested too deeply"), (LARGE, "more than 300,000 characters")]
)
def test_a_file_that_no_fix_fits_is_left_alone(tail: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(BAD + tail)
    (tmp_path / "other.py").write_text(BAD)
    outcome = apply_fixes(lambda overlay: audit(["train.py", "other.py"], overlay=overlay), {}, unsafe=True)
    assert [path.rsplit("/", 1)[-1] for path in outcome.after] == ["other.py"]
    assert why in next(iter(outcome.refused.values()))
    findings = [finding for finding in outcome.result.findings if finding.span.path == "train.py"]
    assert edits_of(findings, {"train.py": BAD + tail}) == {}
    offered = changes_of(BAD + tail, findings)
    assert offered and all("keep it" in change.title for changes in offered for change in changes)


def test_fixes_that_take_too_long_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(BAD)

    def spin(*_: object) -> None:
        while True:
            sum(range(1_000))

    monkeypatch.setattr("ddp_audit.fix.rounds.edit_for", spin)
    result = audit(["train.py"])
    monkeypatch.setattr(budget, "SECONDS", 0.5)
    outcome = apply_fixes(lambda overlay: result, {}, unsafe=True)
    assert not outcome.after and "takes more than 0.5 seconds" in next(iter(outcome.refused.values()))
    assert any(changes_of(BAD, result.findings))


def test_a_text_that_libcst_fails_on_is_refused() -> None:
    with pytest.raises(FixNotApplicable):
        Tree("if " + " and ".join(f"(a == {i} or b{i})" for i in range(3_000)) + ":\n    f()\n")


def test_what_an_error_says_has_a_bound_and_may_fail() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RecursionError

    assert said_of(Odd()) == "Odd: "
    assert len(said_of(ValueError("x" * 10_000))) < 600
    assert said_of(ValueError("a\n  b")) == "ValueError: a b"


def test_a_file_of_usual_depth_is_read() -> None:
    nested = "".join(f"{'    ' * depth}if a{depth}:\n" for depth in range(15)) + "    " * 15 + "f(g(h(k.a.b.c(1)[2])))\n"
    assert Tree(nested).module.code == nested
