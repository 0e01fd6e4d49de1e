"""What a language server knows of a workspace: open documents, the findings of the last audit, and what can be done about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddp_audit.audit import AuditResult, Options, UsageError, audit, installed_rules
from ddp_audit.baseline import BaselineError, compare, read_baseline
from ddp_audit.cli.check import project_options
from ddp_audit.findings import Finding
from ddp_audit.report.pages import page_of, suppression_pages
from ddp_audit.rule import Rule
from ddp_audit.source.config import Config, ConfigError, find_config
from ddp_audit.source.files import SourceError, display_path
from ddp_audit.source.suppress import first_line


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `start` (from 0) up to `end`, not included, of a file replaced by a text; `title` says what for."""

    title: str
    start: int
    end: int
    text: str
    safe: bool


@dataclass(slots=True)
class Session:
    """The open documents by absolute path, and the findings in each. Paths in findings are relative to the server's folder.

    What the baseline of the settings knows is no finding here, as it is none for `check`.
    """

    texts: dict[str, str] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    errors: dict[str, list[SourceError]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)  # of the last audit
    baselines: set[str] = field(default_factory=set)  # absolute paths of those that the settings of open documents name

    def audit(self, path: str) -> str:
        """Audits one open document with the texts of the others over the disk; a line about what kept it from that, or nothing.

        With a baseline that cannot be read every finding counts as new, and the line says so.
        """
        overlay = {name: text.encode() for name, text in self.texts.items()}
        try:
            config = find_config(Path(path))
            options = Options(
                select=config.select,
                ignore=config.ignore,
                exclude=config.exclude,
                force_exclude=True,
                min_confidence=config.min_confidence or "likely",
                world_size=config.world_size,
                **project_options(config),
            )
            result = audit([path], options, overlay=overlay)
        except (ConfigError, UsageError) as error:
            self.findings[path], self.errors[path] = [], []
            return str(error)
        shown = display_path(path)
        new, trouble = self._not_in_baseline(result, config)
        self.rules = list(result.rules.values())
        self.findings[path] = [finding for finding in new if finding.span.path == shown]
        self.errors[path] = [error for error in result.errors if error.path == shown]
        return trouble

    def _not_in_baseline(self, result: AuditResult, config: Config) -> tuple[list[Finding], str]:
        """The findings that the baseline of the settings does not know, and a line where it cannot be read."""
        if config.baseline_file is None:
            return result.findings, ""
        name = config.baseline_file.as_posix()
        self.baselines.add(str(config.baseline_file.absolute()))
        try:
            entries = read_baseline(name)
        except BaselineError as error:
            return result.findings, f"{error}; all findings are shown"
        return compare(result.findings, entries, result.looked_at, result.codes, baseline=name).new, ""

    def close(self, path: str) -> None:
        """Forgets a document."""
        for known in (self.texts, self.findings, self.errors):
            known.pop(path, None)

    def at(self, path: str, line: int) -> list[Finding]:
        """Findings on a line, counted from 1."""
        return [finding for finding in self.findings.get(path, ()) if finding.span.line <= line <= finding.span.end_line]

    def changes(self, path: str, finding: Finding) -> list[Change]:
        """What can be done about a finding: the codemod of its rule, and a comment that keeps it."""
        text = self.texts[path]
        fixes = [change] if (change := _mended(text, finding)) is not None else []
        kept = keeping_change(text, finding)
        return fixes if kept is None else [*fixes, kept]


def page(code: str, rules: Sequence[Rule] = ()) -> str:
    """The page of a rule as Markdown; empty for an unknown code."""
    pages = [*map(page_of, rules or installed_rules()), *suppression_pages()]
    return next((own.markdown() for own in pages if own.code == code), "")


def _mended(text: str, finding: Finding) -> Change | None:
    from ddp_audit.fix.catalogue import FIXES
    from ddp_audit.fix.rounds import edit_for
    from ddp_audit.fix.tree import Refused, Tree

    if finding.fix is None or finding.fix.safety == "display-only" or finding.code not in FIXES:
        return None
    try:
        edit = edit_for(text, Tree(text), finding)
    except Refused:
        return None
    if edit is None:
        return None
    return Change(
        f"{finding.code}: {finding.fix.description}", edit.start, edit.end, "".join(edit.lines), finding.fix.safety == "safe"
    )


def keeping_change(text: str, finding: Finding) -> Change | None:
    """The comment that keeps a finding, above the statement that holds its line; None where there is no such statement."""
    line = first_line(text, finding.span.line)
    if line is None:
        return None
    old = text.split("\n")[line - 1]
    indent = old[: len(old) - len(old.lstrip())]
    comment = f"{indent}# ddp-audit: ignore[{finding.code}]\n"
    return Change(f"{finding.code}: keep it, with a comment", line - 1, line - 1, comment, False)
