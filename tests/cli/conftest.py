"""A rule set small enough to see through, on real files, for tests of what stands around rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.program.model import Program
from ddp_audit.rule import Context, Rule


class Marked(Rule):
    """Reports each line with the word of the class."""

    summary = "A line that holds the word."
    rationale = "It does not matter; the rule is for tests."
    exceptions = "Other lines."
    trace_evidence = "Nothing."
    source = "This file."
    bad = "a = 'HAZARD'"
    good = "a = 'fine'"
    outcome = "not-run it is text"
    fix_hint = "take the word away"
    word = ""
    sure = "likely"

    def check(self, context: Context) -> Iterator[Finding]:
        for path, text in context.program.documents.items():
            for number, line in enumerate(text.split("\n"), 1):
                column = line.find(self.word) + 1
                if column:
                    span = Span(path, number, column, number, column + len(self.word))
                    related = [Related(path, 1, "guard", "only rank 0 enters")]
                    yield self.finding(
                        span, "The word is here.", "It stays here, on all ranks.", related=related, confidence=self.sure
                    )


class Grave(Marked):
    code = "DDP801"
    name = "grave-word"
    level = "error"
    word = "GRAVE"


class Slight(Marked):
    code = "DDP802"
    name = "slight-word"
    level = "warning"
    word = "SLIGHT"


class Aside(Marked):
    code = "DDP811"
    name = "aside-word"
    level = "info"
    word = "ASIDE"


class Vague(Marked):
    code = "DDP812"
    name = "vague-word"
    level = "error"
    word = "VAGUE"
    sure = "possible"


class Failing(Marked):
    code = "DDP899"
    name = "failing-rule"
    level = "error"
    word = "CRASH"

    def check(self, context: Context) -> Iterator[Finding]:
        for finding in super().check(context):
            raise ZeroDivisionError(finding.message)
        return iter(())


RULES = [Grave(), Slight(), Aside(), Vague(), Failing()]


def lower(project: Any, entry: Any, **options: Any) -> Program:
    """A program of the entry and the project files that it imports directly, with nothing in it but their texts."""
    from ddp_audit.source.project import imported_modules

    program = Program(entry=entry.path, documents={entry.path: entry.text})
    for module, level in imported_modules(entry.tree):
        file = project.resolve_import(module, level, entry)
        if file is not None:
            program.documents[file.path] = file.text
    return program


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and the rules of this file in place of the installed ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ddp_audit.audit.installed_rules", lambda folders=(): RULES)
    monkeypatch.setattr("ddp_audit.rule_loading.every_rule", lambda folders=(): RULES)
    monkeypatch.setattr("ddp_audit.program.lower", lower, raising=False)
    return tmp_path
