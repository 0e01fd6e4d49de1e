"""The parts of the benchmark whose programs lie elsewhere in this repository: what is right for them, by their own headers."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "cases"))

from case import Outcome, Program, programs, read_launch, read_program
from intent import ROOT, Intent, own_programs

SCRIPTS = ROOT / "tests" / "under_trace" / "scripts"
PROOFS = ROOT / "benchmarks" / "wild" / "proofs"
PARTS = {
    "blind": "whole small projects after public reports, written without a look at a tool",
    "reports": "single files after public reports, with which this tool was improved",
    "cases": "the cases of this tool's rules: what it is to find is written from its own point of view",
    "scripts": "training programs in many styles, of which a few hang",
    "wild": "the mechanisms of hazards that were found in public projects",
}
# By the hundreds of the rules' codes.
GROUPS = {
    "1": "unsynchronised", "2": "unmatched-collective", "3": "wrong-data", "4": "unsynchronised", "5": "setup", "6": "setup",
    "7": "rank-local-state", "8": "wrong-value",
}  # fmt: skip
KINDS = {"bad": "bug", "fixed": "twin", "alike": "alike"}


def every_program() -> list[Intent]:
    """All programs of all parts. Raises IntentError and CaseError."""
    return [*own_programs("blind"), *own_programs("reports"), *_cases(), *_scripts(), *_proofs()]


def changed_lines(bug: Path, twin: Path) -> set[int]:
    """The lines of a bug that its twin has otherwise."""
    ours, theirs = (path.read_text(encoding="utf-8").splitlines() for path in (bug, twin))
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    lines = {line + 1 for tag, start, end, _, _ in blocks if tag in ("replace", "delete") for line in range(start, end)}
    return {line for line in lines if not ours[line - 1].startswith(("#", '"""', "import ", "from "))}


def _cases() -> list[Intent]:
    found = []
    for program in programs():
        where: set[tuple[str, int]] = set()
        if program.kind == "bad":
            lines = {line for code, line in program.expects if code == program.code}
            lines |= changed_lines(program.path, program.path.with_name("fixed.py"))
            where = {("", line) for line in lines}
        pair = f"{program.code.lower()}/{program.path.parent.name}"
        found.append(_intent(program, "cases", pair, KINDS[program.kind], GROUPS[program.code[3]], where))
    return found


def _proofs() -> list[Intent]:
    found = []
    for path in sorted(PROOFS.glob("*.py")):
        program = read_program(path)
        where = {("", line) for _, line in program.expects}
        codes = sorted(code for code, _ in program.expects)
        group = GROUPS[codes[0][3]] if codes else "unmatched-collective"
        found.append(_intent(program, "wild", path.stem, "bug", group, where))
    return found


def _intent(program: Program, part: str, pair: str, kind: str, group: str, where: set[tuple[str, int]]) -> Intent:
    return Intent(
        program.path,
        part,
        pair,
        kind,
        group,
        program.outcomes,
        frozenset(where),
        "",
        program.started,
        program.launch,
        program.needs,
    )


def _scripts() -> list[Intent]:
    """Those that end or hang; one that raises on all ranks shows no bug of distributed training."""
    found = []
    for path in sorted([*SCRIPTS.glob("*.py"), *SCRIPTS.glob("*/train.py")]):
        head = path.read_text(encoding="utf-8")
        ends = re.match(r"# ends: (hangs|completes)", head)
        if ends is None:
            continue
        launch = re.search(r"^# launch: (.*)$", head, re.MULTILINE)
        command = launch[1] if launch else ""
        kind = "bug" if ends[1] == "hangs" else "alike"
        outcomes = (Outcome("hang") if kind == "bug" else Outcome("clean"),)
        name = path.stem if path.parent == SCRIPTS else path.parent.name
        started = read_launch(command, str(path))
        found.append(Intent(path, "scripts", name, kind, GROUPS["2"], outcomes, frozenset(), "", started, command))
    return found
