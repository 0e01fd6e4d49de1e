"""What a language server knows of a workspace: the open documents, their audits, and what can be done about each finding."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_audit.audit import AuditResult, Options, UsageError, audit, installed_rules
from ddp_audit.baseline import BaselineError, compare, read_baseline
from ddp_audit.cli.check import project_options
from ddp_audit.findings import Finding
from ddp_audit.report.pages import page_of, page_url, suppression_pages
from ddp_audit.rule import Rule
from ddp_audit.selection import withheld_note
from ddp_audit.server.documents import Document, as_bytes
from ddp_audit.source.config import Config, ConfigError, find_config
from ddp_audit.source.files import SourceError, check_text, decode, display_path, read_bytes
from ddp_audit.source.problems import said_of
from ddp_audit.source.suppress import first_lines

if TYPE_CHECKING:
    from ddp_audit.fix.tree import Tree


HOW_TO_ALLOW = "Here that is an option of 'ddp-audit server', or the initialization option allowProjectRules."


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `start` (from 0) up to `end`, not included, of a file replaced by a text; `title` says what for."""

    title: str
    start: int
    end: int
    text: str
    safe: bool


@dataclass(slots=True)
class Outcome:
    """What the audit of one text of a document came to.

    `broken` says why Python cannot parse the text; nothing was audited then. `trouble` is a line about settings or a baseline
    that cannot be followed, for the user, `internal` are lines about errors of the auditor, for its log. `differs` says whether
    others see another text than before, `is_new` whether they see one for the first time.
    """

    uri: str
    text: str
    broken: SourceError | None = None
    findings: list[Finding] | None = None  # None where there was no audit: what was found before still holds
    errors: list[SourceError] = field(default_factory=list)
    reads: frozenset[str] = frozenset()
    trouble: str = ""
    internal: list[str] = field(default_factory=list)
    withheld: str = ""  # a line about rules of the project that were not loaded, for the log
    differs: bool = False
    is_new: bool = False


@dataclass(slots=True)
class Session:
    """The open documents by URI. Paths in findings are relative to the server's folder.

    What the baseline of the settings knows is not a finding here, as for `check`.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)  # of the last audit
    allow_rules: bool = False  # whether rules that a project's settings name are loaded, which executes code of the project
    baselines: set[str] = field(default_factory=set)  # absolute paths of those that the settings of open documents name

    def at(self, path: str) -> Document | None:
        """The open document with an absolute path; where two have it, the one that is a file."""
        found = [document for document in self.documents.values() if document.path == path]
        return max(found, key=lambda document: document.uri.startswith("file:"), default=None)

    def texts(self) -> dict[str, str]:
        """The text of each open document by absolute path, as the audits of the others see it: the last one that parses."""
        return {document.path: document.text if document.good is None else document.good for document in self.documents.values()}

    def audit(self, document: Document, texts: Mapping[str, str]) -> Outcome:
        """Audits the text of a document with the texts of the others in place of what the disk holds. Changes nothing open."""
        outcome = Outcome(document.uri, document.text)
        shown = display_path(document.path)
        config = None
        try:
            config = find_config(Path(document.path))
        except ConfigError as error:
            outcome.trouble = str(error)
        try:
            check_text(outcome.text, shown)
        except SourceError as error:
            outcome.broken = error
            return outcome
        before = _on_disk(document.path) if document.good is None else document.good
        outcome.differs, outcome.is_new = before != outcome.text, before is None
        if config is None:
            return outcome
        try:
            options = Options(
                select=config.select,
                ignore=config.ignore,
                exclude=config.exclude,
                force_exclude=True,
                min_confidence=config.min_confidence or "likely",
                world_size=config.world_size,
                **project_options(config, allow_rules=self.allow_rules),
            )
            if options.withheld_rules:
                outcome.withheld = f"{withheld_note(options.withheld_rules)} {HOW_TO_ALLOW}"
            overlay = {path: as_bytes(text) for path, text in {**texts, document.path: outcome.text}.items()}
            result = audit([document.path], options, overlay=overlay)
        except UsageError as error:
            outcome.trouble = str(error)
            return outcome
        except Exception as error:  # the editor goes on with what was found before
            outcome.internal = [f"the audit of {shown} failed: {said_of(error)}"]
            return outcome
        new, outcome.trouble = self._not_in_baseline(result, config)
        self.rules = list(result.rules.values())
        outcome.findings = [finding for finding in new if finding.span.path == shown]
        outcome.errors = [error for error in result.errors if error.path == shown and not error.is_internal]
        outcome.internal = [str(error) for error in result.errors if error.is_internal]
        outcome.reads = frozenset(map(os.path.abspath, result.sources))
        return outcome

    def take(self, document: Document, outcome: Outcome) -> list[Document]:
        """Takes over what an audit came to; returns the other documents to audit because of it."""
        document.broken = outcome.broken
        if outcome.broken is not None:
            return []
        document.good = outcome.text
        if outcome.findings is not None:
            document.findings, document.errors, document.reads = outcome.findings, outcome.errors, outcome.reads
        return self.others(document.path, outcome.is_new) if outcome.differs else []

    def others(self, path: str, is_there: bool = False) -> list[Document]:
        """The documents whose audit read a file; all, where a file is there that was not, or is gone: any import may mean it."""
        return [other for other in self.documents.values() if other.path != path and (is_there or path in other.reads)]

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
        return compare(result.findings, entries, result.files_read, result.codes, baseline=name).new, ""

    def close(self, document: Document) -> list[Document]:
        """Forgets a document; returns those to audit because they see what the disk holds from now on."""
        self.documents.pop(document.uri, None)
        on_disk = _on_disk(document.path)
        seen = document.text if document.good is None else document.good
        return [] if on_disk == seen else self.others(document.path, on_disk is None)

    def link(self, code: str) -> str | None:
        """Where the page of a rule is: on the project's site, or the file of a rule of the user's own; None for unknown codes."""
        own = next((rule for rule in self.rules if rule.code == code), None)
        if own is None or type(own).__module__.split(".")[0] == "ddp_audit_rules":
            return page_url(code)
        place = getattr(sys.modules.get(type(own).__module__), "__file__", None)
        return None if place is None else Path(place).absolute().as_uri()


def _on_disk(path: str) -> str | None:
    """The text of a file; None if none can be read."""
    try:
        return decode(read_bytes(path), display_path(path))
    except SourceError:
        return None


def page(code: str, rules: Sequence[Rule] = ()) -> str:
    """The page of a rule as Markdown; empty for an unknown code."""
    pages = [*map(page_of, rules or installed_rules()), *suppression_pages()]
    return next((own.markdown() for own in pages if own.code == code), "")


def changes_of(text: str, findings: Sequence[Finding]) -> list[list[Change]]:
    """What can be done about each finding in a text: the codemod of its rule, and a comment that keeps it."""
    mended = _mended(text, findings)
    kept = keeping_changes(text, findings)
    return [[change for change in (mended.get(number), kept.get(number)) if change is not None] for number in range(len(findings))]


def _mended(text: str, findings: Sequence[Finding]) -> dict[int, Change]:
    """What the codemod of each finding changes, by the finding's number, for those that have one which does not decline."""
    able = {n: f for n, f in enumerate(findings) if f.fix is not None and f.fix.safety != "display-only"}
    if not able:
        return {}
    from ddp_audit.fix.catalogue import FIXES, title_of
    from ddp_audit.fix.rounds import edit_for, refused_past_budget
    from ddp_audit.fix.tree import FixNotApplicable, Tree

    found: dict[int, Change] = {}
    tree: Tree | None = None
    with suppress(FixNotApplicable), refused_past_budget():
        for number, finding in able.items():
            assert finding.fix is not None
            if finding.code not in FIXES:
                continue
            tree = tree or Tree(text)
            try:
                edit = edit_for(text, tree, finding)
            except FixNotApplicable:
                continue
            if edit is not None:
                title = f"{finding.code}: {title_of(finding)}"
                found[number] = Change(title, edit.start, edit.end, "".join(edit.lines), finding.fix.safety == "safe")
    return found


def keeping_changes(text: str, findings: Sequence[Finding]) -> dict[int, Change]:
    """The comment that keeps each finding, by the finding's number, above the statement that holds its line, where one does."""
    first = first_lines(text, [finding.span.line for finding in findings])
    lines = text.split("\n")
    found: dict[int, Change] = {}
    for number, finding in enumerate(findings):
        line = first.get(finding.span.line)
        if line is not None:
            old = lines[line - 1]
            comment = f"{old[: len(old) - len(old.lstrip())]}# ddp-audit: ignore[{finding.code}]\n"
            found[number] = Change(f"{finding.code}: keep it, with a comment", line - 1, line - 1, comment, False)
    return found


def warm_up() -> None:
    """Loads what the first quick fix would wait for."""
    from ddp_audit.fix import catalogue  # noqa: F401
    from ddp_audit.fix.tree import Tree

    Tree("import torch\n")
