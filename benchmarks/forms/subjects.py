"""The programs that are rewritten: every case and every example of a rule's page, with what the audit says of each."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cases"))

from case import Outcome, Program, Started, programs, read_outcomes

from ddp_audit.api import Options, audit
from ddp_audit.rule import load_rules
from forms.form import Form, Source

ALARMS = ("error", "warning")


@dataclass(frozen=True, slots=True)
class Subject:
    """A program and how it is started. `beside` are the files that stand by it, `code` the rule whose example it is."""

    name: str
    code: str
    kind: str
    source: Source
    file: str
    launch: str
    started: Started
    outcomes: tuple[Outcome, ...]
    beside: Mapping[str, str] = field(default_factory=dict)
    hindrance: str = ""
    devices: int = 0

    def fits(self, form: Form) -> bool:
        """Whether a form may be tried: it does not mend the program, and what it reads is set."""
        mended = self.code in form.mends and self.kind in ("bad", "page-bad")
        return not mended and (self.started.torchrun or not form.own_launch)


def subjects() -> list[Subject]:
    """All of them, in a fixed order."""
    return [*map(_of_case, programs()), *_of_pages()]


def _of_case(program: Program) -> Subject:
    folder = program.path.parent
    beside = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(folder.iterdir())
        if path.is_file() and path != program.path and path.suffix != ".pyc"
    }
    folders = [path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"]
    for path in (one for each in folders for one in sorted(each.rglob("*"))):
        if path.is_file() and path.suffix != ".pyc":
            beside[str(path.relative_to(folder))] = path.read_text(encoding="utf-8")
    return Subject(
        name=program.name, code=program.code, kind=program.kind, source=Source(program.path.read_text(encoding="utf-8")),
        file=program.path.name, launch=program.launch, started=program.started, outcomes=program.outcomes, beside=beside,
        hindrance=program.hindrance, devices=program.devices,
    )  # fmt: skip


def _of_pages() -> Iterator[Subject]:
    for rule in load_rules():
        for kind, text, outcome in (("bad", rule.bad, rule.outcome), ("good", rule.good, "clean")):
            said = read_outcomes(rule.outcome if rule.outcome.startswith("not-run") else outcome, rule.code)
            hindrance = "; ".join(one.text for one in said if one.word == "not-run")
            yield Subject(
                name=f"page/{rule.code.lower()}/{kind}.py", code=rule.code, kind=f"page-{kind}", source=Source(text), file="train.py",
                launch="", started=Started(), outcomes=said, hindrance=hindrance,
            )  # fmt: skip


@contextmanager
def folder_of(subject: Subject) -> Iterator[Path]:
    """An empty folder with the files beside a program, as the working directory."""
    before = Path.cwd()
    with TemporaryDirectory() as name:
        folder = Path(name)
        put(folder, subject.beside)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def put(folder: Path, files: Mapping[str, str]) -> None:
    """Write some files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def alarms(subject: Subject, source: Source, folder: Path) -> Counter[str]:
    """The codes of the errors and warnings that an audit of a program shows, in the folder of `folder_of`.

    Raises RuntimeError where it cannot be audited.
    """
    put(folder, source.files | {subject.file: source.text})
    try:
        result = audit([subject.file], Options(launch=subject.launch or None))
    finally:
        for name in source.files:
            (folder / name).unlink()
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    if result.errors:
        raise RuntimeError("; ".join(map(str, result.errors)))
    return Counter(finding.code for finding in result.findings if finding.severity in ALARMS)
