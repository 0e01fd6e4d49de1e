"""The audit: paths to project, each entry to a program, rules to findings, suppressions, order. Nothing audited is executed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit.budget import bounded_memory
from ddp_audit.entries import EntryResult, Job, Lower, audit_entries
from ddp_audit.findings import CONFIDENCES, SEVERITIES, Finding, gather_places, number_occurrences
from ddp_audit.gc_pause import gc_paused
from ddp_audit.outcome import AuditResult, Coverage, LazyMapping, NotFollowed, Options, UsageError
from ddp_audit.selection import Selection, described_by, hints_of, match_rules, preview_note, rule_names, stubs_note, withheld_note
from ddp_audit.source import dependency_log, suppress
from ddp_audit.source.files import SourceError, decode, display_path, parse_text, read_bytes
from ddp_audit.source.project import Project, Tell, fits_pattern
from ddp_audit.source.suppress_documents import document_suppressions

if TYPE_CHECKING:
    from ddp_audit.cache.entries import Memory
    from ddp_audit.launch import Launch
    from ddp_audit.launch.overrides import Override
    from ddp_audit.rule import Rule
    from ddp_audit.source.notebook import Notebook

__all__ = ["AuditResult", "Options", "UsageError", "audit", "hints_of", "installed_rules", "match_rules", "rule_names"]


def audit(
    paths: Sequence[str | os.PathLike[str]],
    options: Options | None = None,
    *,
    rules: Sequence[Rule] | None = None,
    lower: Lower | None = None,
    overlay: Mapping[str, bytes] | None = None,
    memory: Memory | None = None,
    tell: Tell | None = None,
) -> AuditResult:
    """Audits scripts and folders. `rules` and `lower` replace the installed rules and the lowering.

    `overlay` gives the bytes of files by absolute path that are read in place of what the disk holds. `memory` has the results of
    entries that nothing changed for, and takes up the others'. `tell` receives how far it has come.
    Raises UsageError where an option cannot be followed. What goes wrong with a file is in the result's `errors`.
    """
    options = options or Options()
    selection = Selection(lambda: installed_rules(options.rule_folders) if rules is None else list(rules), options)
    with dependency_log.nested_recording() as asked:
        launch = launch_of(options)
        explicit = explicit_overrides(options)
    with gc_paused(), bounded_memory():
        project = project_of(paths, options, overlay, memory, tell)
        known = {} if memory is None else memory.recall(project)
        needed = selection.chosen if any(entry.abspath not in known for entry in project.entries) else []
        hints = hints_of(options)
        job = Job(project, needed, launch, explicit, options.defaults_hold, lower, hints, lambda: selection.every)
        gc.freeze()  # the trees are passed over by the searches for cycles that the entries cause
    try:
        entries = audit_entries(job, options.jobs, known, tell)
    finally:
        gc.unfreeze()  # a language server goes on
    if memory is not None:
        memory.keep(project, entries, known, asked)
    result = AuditResult()
    found = [finding for entry in entries for finding in entry.findings]
    failures = [failure for entry in entries for failure in entry.failures]
    runs = [entry.predicted for entry in entries if entry.predicted is not None]
    result.predicted = {"runs": [_with_cells(run, _notebooks(project)) for run in runs]} if runs else None
    result.notes = list(dict.fromkeys(note for entry in entries for note in entry.notes))
    result.notes += [
        f"{file.path}: "
        + ("1 line" if file.notebook.skipped == 1 else f"{file.notebook.skipped} lines")
        + " of magics and shell commands not read."
        for file in project.files
        if file.notebook is not None and file.notebook.skipped
    ]
    result.coverage = _coverage(entries, _notebooks(project))
    if options.stubs:
        result.notes.append(stubs_note(described_by(options)))
    if selection.unheeded:
        result.notes.append(preview_note(selection.unheeded))
    if options.withheld_rules:
        result.notes.append(withheld_note(options.withheld_rules))
    documents = {path: text for entry in entries for path, text in entry.documents.items()}
    outside = frozenset() if options.show_imported else _outside(project, entries)
    with bounded_memory():
        result.findings, result.suppressed, hidden = _settle(found, project, documents, selection, options, outside)
    if hidden:
        result.notes.append(_hidden_note(hidden))
    result.errors = sorted(project.errors + failures, key=lambda error: (error.path, error.cell or 0, error.line or 0))
    result.sources, result.notebooks = _sources(project, documents, result.findings), _notebooks(project)
    result.left_out = outside
    result.files_read = {*(file.path for file in project.files), *map(display_path, project.passed_by)}
    if selection.is_loaded:
        result.rules, result.codes = selection.by_code, selection.codes
    else:
        result.rules, result.codes = LazyMapping(lambda: selection.by_code), LazyMapping(lambda: dict.fromkeys(selection.codes))
    return result


def project_of(
    paths: Sequence[str | os.PathLike[str]],
    options: Options,
    overlay: Mapping[str, bytes] | None = None,
    memory: Memory | None = None,
    tell: Tell | None = None,
) -> Project:
    """The files that paths and options name."""
    return Project(
        paths,
        options.exclude,
        respect_gitignore=options.respect_gitignore,
        force_exclude=options.force_exclude,
        home=options.home,
        overlay=overlay,
        roots=options.roots,
        facts=None if memory is None else memory.facts,
        tell=tell,
    )


def installed_rules(folders: Sequence[str] = ()) -> list[Rule]:
    """The rules that are installed, and those of some folders. Raises UsageError where one cannot be loaded."""
    from ddp_audit.rule_loading import RuleError, every_rule

    try:
        return every_rule(folders)
    except RuleError as error:
        raise UsageError(str(error)) from None


def launch_of(options: Options) -> Launch | None:
    """The launch that the options describe, None where they describe none. Raises UsageError."""
    if options.launch is None and options.world_size is None:
        return None
    if options.launch is not None and options.world_size is not None:
        raise UsageError("--world-size cannot be combined with --launch")
    from ddp_audit.launch import Launch, LaunchError, named_launch, world_launch

    try:
        if isinstance(options.launch, Launch):
            return options.launch
        if options.launch is not None:
            return named_launch(options.launch)
        assert options.world_size is not None
        return world_launch(options.world_size)
    except LaunchError as error:
        raise UsageError(str(error)) from None


def explicit_overrides(options: Options) -> dict[str, Override]:
    """What `--config-file` and then `--set` give, by name."""
    if not options.config_files and not options.settings:
        return {}
    from ddp_audit.launch.overrides import Override, config_file_values, literal

    overrides: dict[str, Override] = {}
    for path in options.config_files:
        shown = display_path(path)
        try:
            text = decode(read_bytes(Path(path)), shown)
            if path.endswith(".py"):
                parse_text(text, shown)
        except SourceError as error:
            raise UsageError(f"--config-file: {error}") from None
        overrides.update(config_file_values(Path(path), shown))
    for setting in options.settings:
        name, separator, value = setting.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not separator or not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(f"--set takes NAME=VALUE, not '{setting}'")
        overrides[name] = Override(literal(value.strip()), f"--set {setting}")
    return overrides


def _coverage(entries: Sequence[EntryResult], notebooks: Mapping[str, Notebook]) -> Coverage:
    """How far the audit of all scripts came."""
    found = [entry.coverage for entry in entries if entry.coverage is not None]
    left = dict.fromkeys(place for one in found for place in one.not_followed)
    return Coverage(
        tuple(script for one in found for script in one.scripts), tuple(_placed_in_cell(place, notebooks) for place in left)
    )


def _placed_in_cell(place: NotFollowed, notebooks: Mapping[str, Notebook]) -> NotFollowed:
    if place.path not in notebooks or place.line is None:
        return place
    cell, line = notebooks[place.path].place(place.line)
    return replace(place, cell=cell, line=line)


def _settle(
    found: list[Finding],
    project: Project,
    documents: Mapping[str, str],
    selection: Selection,
    options: Options,
    outside: Set[str],
) -> tuple[list[Finding], int, list[Finding]]:
    """Findings in their final order, once each, without the suppressed ones; how many those were; and those in files outside."""
    unique = _once(found)
    by_path: dict[str, list[Finding]] = {}
    for finding in unique:
        by_path.setdefault(finding.span.path, []).append(finding)
    least = CONFIDENCES.index(options.min_confidence)
    kept: list[Finding] = []
    suppressed: list[Finding] = []
    for file in project.files:
        own = by_path.pop(file.path, [])
        for finding in own:
            finding.source_line = finding.source_line or file.line(finding.span.line).strip()
        stay, gone = suppress.apply(own, comments := suppress.suppressions(file))
        kept += stay
        suppressed += gone
        # In a file that was only imported, a comment may be for another script that imports it.
        kept += _complaints(comments, selection, file.abspath in project.given)
    for path in sorted({*by_path, *documents}):
        text = documents[path] if path in documents else _text_of(path)
        own = by_path.get(path, [])
        for finding in own:
            finding.source_line = finding.source_line or _line(text, finding.span.line)
        stay, gone = suppress.apply(own, comments := _comments_of(text, path))
        kept += stay
        suppressed += gone
        # Outside of a folder that is audited whole, a comment may be for a script that was not looked at.
        kept += _complaints(comments, selection, project.is_in_given_folder(path), documents=True)
    kept = [finding for finding in kept if CONFIDENCES.index(finding.confidence) >= least]
    kept = _without_ignored(kept, options, selection)
    _set_levels(kept, options, selection)
    hidden = [finding for finding in kept if finding.span.path in outside]
    kept = [finding for finding in kept if finding.span.path not in outside]
    suppressed = [finding for finding in suppressed if finding.span.path not in outside]
    notebooks = _notebooks(project)
    if notebooks:
        kept = [_in_cells(finding, notebooks) for finding in kept]
    number_occurrences(kept)
    kept.sort(key=lambda finding: (finding.sort_key, finding.message))
    gather_places(kept)
    return kept, sum(CONFIDENCES.index(finding.confidence) >= least for finding in suppressed), hidden


def _outside(project: Project, entries: Sequence[EntryResult]) -> frozenset[str]:
    """The files that were imported and are not reported on: none in a given folder, nor in the project of a given script."""
    own = {file.abspath for file in project.files if file.abspath in project.given or project.is_in_given_folder(file.abspath)}
    for entry, result in zip(project.entries, entries, strict=True):
        if entry.abspath in project.scripts:
            own |= {path for path in result.paths if project.shares_project(entry.abspath, path)}
    return frozenset(file.path for file in project.files if file.abspath not in own)


def _hidden_note(hidden: Sequence[Finding]) -> str:
    """The line about findings that are left out because of where they are."""
    paths = sorted({finding.span.path for finding in hidden})
    named = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    findings = "1 finding" if len(hidden) == 1 else f"{len(hidden)} findings"
    return f"{findings} in imported files outside of the given paths left out (--show-imported shows them): {named}."


def _notebooks(project: Project) -> dict[str, Notebook]:
    return {file.path: file.notebook for file in project.files if file.notebook is not None}


def _in_cells(finding: Finding, notebooks: Mapping[str, Notebook]) -> Finding:
    """A finding whose places in notebooks have the lines of their cells, instead of those of the joined code."""

    def place(path: str, line: int) -> dict[str, Any]:
        if path not in notebooks or not line:
            return {"line": line}
        cell, inner = notebooks[path].place(line)
        return {"line": inner, "cell": cell}

    related = [replace(one, **place(one.path, one.line)) for one in finding.related]
    places = None if finding.places is None else [replace(one, **place(one.path, one.line)) for one in finding.places]
    cell, span = None, finding.span
    if span.path in notebooks:
        cell, span = notebooks[span.path].span(span)
    return replace(finding, span=span, cell=cell, related=related, places=places)


def _with_cells(run: dict[str, Any], notebooks: Mapping[str, Notebook]) -> dict[str, Any]:
    """A predicted run whose findings have the places that the findings themselves have."""
    findings = []
    for one in run["findings"]:
        cell, line = notebooks[one["path"]].place(one["line"]) if one["path"] in notebooks else (None, one["line"])
        findings.append({"code": one["code"], "path": one["path"], "cell": cell, "line": line})
    return {**run, "findings": findings}


def _complaints(
    comments: Sequence[suppress.Suppression], selection: Selection, ran: bool, documents: bool = False
) -> list[Finding]:
    """What is wrong with comments; where the rules `ran` on all that they can be for, those that suppress nothing count too."""
    if not comments:
        return []
    known = {text for pair in selection.names.items() for text in pair}
    rules = [rule for rule in selection.chosen if ran and (rule.reads_documents or not documents)]
    expected = {text for rule in rules for text in (rule.code, rule.name)}
    found = [finding for finding in suppress.complaints(comments, known, expected) if finding.code in selection.codes]
    # An unknown code may be that of a rule which was not loaded.
    return [finding for finding in found if finding.code != suppress.UNKNOWN[0]] if selection.is_partial else found


def _comments_of(text: str, path: str) -> list[suppress.Suppression]:
    """The suppression comments of a file that is not part of the program: a document, or a config file."""
    return suppress.python_suppressions(text, path) if path.endswith(".py") else document_suppressions(text, path)


def _sources(project: Project, documents: Mapping[str, str], findings: Iterable[Finding]) -> dict[str, list[str]]:
    """The lines of the project's files, and of documents that findings name."""
    found = {file.path: file.lines for file in project.files}
    for path in {path for finding in findings for path in finding.paths} - found.keys():
        text = documents.get(path) or _text_of(path)
        if text:
            found[path] = text.split("\n")
    return found


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1].strip() if 1 <= number <= len(lines) else ""


def _text_of(path: str) -> str:
    try:
        return decode(read_bytes(Path(path)), path)
    except SourceError:
        return ""


def _without_ignored(findings: list[Finding], options: Options, selection: Selection) -> list[Finding]:
    """The findings less those that `per-file-ignores` names for their files."""
    for pattern, rules in options.per_file_ignores:
        codes = match_rules(rules, selection.names, selection.is_partial, dict(options.origins))
        findings = [f for f in findings if f.code not in codes or not fits_pattern(f.span.path, pattern, options.home)]
    return findings


def _set_levels(findings: list[Finding], options: Options, selection: Selection) -> None:
    """Gives findings the levels of the settings, the longest name of a rule last."""
    for name, level in sorted(options.levels, key=lambda pair: len(pair[0])):
        codes = match_rules([name], selection.names, selection.is_partial, dict(options.origins))
        for finding in findings:
            if finding.code in codes and level != "off":
                finding.severity = level


def _once(found: Iterable[Finding]) -> list[Finding]:
    """One finding for a code and place: the gravest and surest where several entries lead there."""
    best: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = (finding.code, finding.span)
        other = best.get(key)
        if other is None or _weight(finding) > _weight(other):
            best[key] = finding
    return list(best.values())


def _weight(finding: Finding) -> tuple[int, int]:
    return SEVERITIES.index(finding.severity), CONFIDENCES.index(finding.confidence)
