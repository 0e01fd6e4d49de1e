"""Tests of rules: whether the programs in VALID have no finding of a rule, and those in INVALID have theirs.

`check_examples(MyRule)` in a test of a project's own rules says what is wrong with its examples.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddp_audit.audit import Options, audit
from ddp_audit.findings import Finding
from ddp_audit.rule import Rule

MARK = "# finding"  # ends a line of an INVALID program in which a finding begins


def findings_in(rule: Rule | type[Rule], program: str, options: Options | None = None) -> list[Finding]:
    """The findings of one rule in a program, those of low confidence included. Raises ValueError where it cannot be audited."""
    own = rule() if isinstance(rule, type) else rule
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(textwrap.dedent(program), encoding="utf-8")
        result = audit([path], replace(options or Options(min_confidence="possible"), preview=True), rules=[own])
    if result.errors:
        raise ValueError("; ".join(map(str, result.errors)))
    return [finding for finding in result.findings if finding.code == own.code]


def check_examples(rule: Rule | type[Rule], valid: Sequence[str] = (), invalid: Sequence[str] = ()) -> list[str]:
    """What is wrong with the examples of a rule, a line each; nothing where the rule does what they say.

    The examples are those in the rule's VALID and INVALID, and those given.
    """
    wrong: list[str] = []
    for number, program in enumerate([*getattr(rule, "VALID", ()), *valid]):
        lines = [finding.span.line for finding in findings_in(rule, program)]
        if lines:
            wrong.append(f"VALID[{number}]: a finding in line {', '.join(map(str, lines))}")
    for number, program in enumerate([*getattr(rule, "INVALID", ()), *invalid]):
        found = sorted({finding.span.line for finding in findings_in(rule, program)})
        marked = [n for n, line in enumerate(textwrap.dedent(program).split("\n"), 1) if line.rstrip().endswith(MARK)]
        if not found:
            wrong.append(f"INVALID[{number}]: no finding")
        elif marked and found != marked:
            wrong.append(f"INVALID[{number}]: findings in lines {found} instead of {marked}")
    return wrong


__all__ = ["MARK", "check_examples", "findings_in"]
