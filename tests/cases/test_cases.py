"""Every case is found where its header says, and nothing else is said of it. What a run shows is checked by run.py."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from case import CaseError, Program, programs, read_launch, read_outcomes, read_program

from ddp_audit.audit import Options, audit
from ddp_audit.findings import Finding

PROGRAMS = programs()
MOST_WORDS = 25  # of a message, which is one sentence


def words(message: str) -> int:
    """The words of a message. A piece of code counts as one, and so does a remark in brackets."""
    return len(re.sub(r"`[^`]*`|\([^()]*(?:\([^()]*\)[^()]*)*\)", "code", message).split())


def told(program: Program, findings: Iterable[Finding]) -> set[tuple[str, int]]:
    """The findings that a header lists: those of the case's rule, and every error and warning, in the program's own folder."""
    return {
        (finding.code, finding.span.line)
        for finding in findings
        if finding.code == program.code or finding.severity in ("error", "warning")
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_case_is_judged_as_its_header_says(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program.path.parent)
    result = audit([program.path.name], Options(launch=program.launch or None, preview=True))
    assert not result.errors
    assert told(program, result.findings) == program.expects
    assert [finding.message for finding in result.findings if words(finding.message) > MOST_WORDS] == []


@pytest.mark.parametrize(
    "folder", sorted({program.path.parent for program in PROGRAMS}), ids=lambda folder: "/".join(folder.parts[-2:])
)
def test_folder_is_whole(folder: Path) -> None:
    here = {program.path.name: program for program in PROGRAMS if program.path.parent == folder}
    assert ("bad.py" in here) == ("fixed.py" in here)
    for name, program in here.items():
        wanted = name == "bad.py"
        assert any(code == program.code for code, _ in program.expects) == wanted, (
            f"{name}: a bad program expects its rule, others do not"
        )
        factor = any(outcome.word == "wrong-factor" for outcome in program.outcomes)
        assert not factor or (folder / "reference.py").exists(), f"{name}: wrong-factor needs a reference.py"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("# expects: nothing\n", "no line 'outcome'"),
        ("# outcome: clean\n", "no line 'expects'"),
        ("# expects: DDP401\n# outcome: clean\n", "not CODE:LINE"),
        ("# expects: nothing\n# outcome: fine\n", "'fine' is no outcome"),
        ("# expects: nothing\n# outcome: hang\n", "needs its ranks"),
        ("# expects: nothing\n# outcome: shows\n", "says nothing more"),
        ("# expects: nothing\n# outcome: clean\n# launch: torchrun\n", "names no script"),
    ],
)
def test_broken_header_is_told(header: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "ddp401" / "case" / "bad.py"
    path.parent.mkdir(parents=True)
    path.write_text(header)
    with pytest.raises(CaseError, match=message):
        read_program(path)


def test_header_is_read() -> None:
    first, second = read_outcomes("error 1: ValueError; hang 0", "here")
    assert (first.word, first.ranks, first.text) == ("error", {1}, "ValueError")
    assert (second.word, second.ranks) == ("hang", {0})
    started = read_launch("A=1 torchrun --nnodes 2 --nproc-per-node=1 bad.py --accumulation 8", "here")
    assert (started.nnodes, started.nproc, started.arguments) == (2, 1, ("--accumulation", "8"))
    assert started.environment == (("A", "1"),) and started.torchrun and started.world_size == 2
    assert not read_launch("python bad.py", "here").torchrun
