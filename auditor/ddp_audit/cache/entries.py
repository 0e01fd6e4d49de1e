"""The results of single entries, kept from one audit to the next: after a change only what depends on it is audited again.

One file holds those of one working directory and set of options. What an entry looked at (source/dependency_log.py) are rows of a
table that all entries share; an entry is used where each of its rows still holds, so a file or folder that an import or a launch
would find only now counts as well. Facts about contents (source/facts.py) are stored with them, so that files need not be parsed
again. The cache is per user and per machine; its hashes are not a security boundary.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddp_audit.audit import audit
from ddp_audit.cache import files
from ddp_audit.cache.files import cache_folder
from ddp_audit.cache.tool import key_of
from ddp_audit.entries import EntryResult
from ddp_audit.outcome import AuditResult, Coverage, Options
from ddp_audit.source import dependency_log, freshness
from ddp_audit.source.dependency_log import DependencyLog, recording
from ddp_audit.source.facts import Facts
from ddp_audit.source.files import SourceFile
from ddp_audit.source.project import Project, Tell

_MOST_ENTRIES = 5_000
_MOST_FACTS = 100_000

Row = tuple[str, str, str]


def cached_audit(
    paths: Sequence[str], options: Options, tell: Tell | None = None, fingerprints: freshness.Fingerprints | None = None
) -> AuditResult:
    """What `audit` gives, as far as possible from the cache. Where it went without errors, `held` takes up what it rests on.

    Raises UsageError.
    """
    began = time.time_ns()
    memory = Memory(cache_folder() / f"parts-{key_of(options.rule_folders, _of_entries(options))}.json")
    with recording() as log:
        result = audit(paths, options, memory=memory, tell=tell)
    memory.save()
    if not result.errors and fingerprints is not None:
        fingerprints.update(freshness.fingerprints(log, began))
    return result


def _of_entries(options: Options) -> str:
    """The options that a result of an entry depends on; the others choose entries and findings."""
    off = [name for name, level in options.levels if level == "off"]
    rest = replace(
        options,
        jobs=1,
        min_confidence="",
        exclude=(),
        force_exclude=False,
        home="",
        per_file_ignores=(),
        levels=(),
        origins=(),
        show_imported=False,
        respect_gitignore=True,
    )
    return repr((rest, off))


class Memory:
    """What one file holds. It is read at once, and written by `save`; a file that is damaged counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, tuple[list[Row], dict[str, Any]]] = {}  # by key: what it rests on, and the result as it is written
        self.facts = Facts(keeps=True)
        self._state = self._read()
        self._used: list[str] = []
        self._changed = False
        self._facts_before = len(self.facts.known)

    def recall(self, project: Project) -> dict[str, EntryResult]:
        """Results of the project's entries for which the disk is as it was, by absolute path. What was looked at is noted."""
        found: dict[str, EntryResult] = {}
        holds: dict[Row, bool] = {}
        for entry in project.entries:
            key = _key(project, entry)
            rows, document = self._kept.get(key, ((), {}))
            if not rows:
                continue
            for row in rows:
                if row not in holds:
                    holds[row] = dependency_log.current_value(row[0], row[1]) == row[2]
                if not holds[row]:
                    break
            else:
                try:
                    found[entry.abspath] = _result(document)
                except files.DAMAGE:
                    continue
                self._used.append(key)
        return found

    def keep(
        self, project: Project, results: Sequence[EntryResult], known: Mapping[str, EntryResult], asked: DependencyLog
    ) -> None:
        """Takes up the results that were not known and are whole. `asked` is what the options of all entries rest on."""
        for entry, result in zip(project.entries, results, strict=True):
            if entry.abspath in known or result.seen is None or result.failures or any(map(project.failed, result.paths)):
                continue
            key = _key(project, entry)
            self._kept[key] = ([*dict.fromkeys([*result.seen.rows("modules"), *asked.rows("modules")])], _document(result))
            self._used.append(key)
            self._changed = True

    def save(self) -> None:
        """Writes the file where there is something new. What another process wrote meanwhile is kept too."""
        if not self._changed and len(self.facts.known) == self._facts_before:
            files.touch(self._path)
            return
        if self._written() != self._state:
            own, facts = self._kept, self.facts
            self._read()
            self._kept.update({key: own[key] for key in self._used})
            facts.known = {**self.facts.known, **facts.known}
            self.facts = facts
        used = dict.fromkeys([*self._used, *self._kept])
        numbers: dict[Row, int] = {}
        entries = {}
        for key in list(used)[:_MOST_ENTRIES]:
            rows, document = self._kept[key]
            entries[key] = [[numbers.setdefault(row, len(numbers)) for row in rows], document]
        known = self.facts.known
        first = [key for key in dict.fromkeys([*self.facts.used, *known]) if key in known][:_MOST_FACTS]
        files.write(self._path, {"rows": list(numbers), "entries": entries, "facts": {key: known[key] for key in first}})

    def _written(self) -> object:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> object:
        """Reads the file and gives its state on the disk."""
        state = self._written()
        self._kept, facts = {}, {}
        try:
            document = files.read(self._path)
            rows = [(str(sort), str(path), str(value)) for sort, path, value in document["rows"]]
            for key, (numbers, result) in document["entries"].items():
                self._kept[key] = ([rows[number] for number in numbers], result)
            facts = {key: [fact[0], fact[1]] for key, fact in document["facts"].items()}
        except files.DAMAGE:
            self._kept, facts = {}, {}
        self.facts = Facts(keeps=True, known=facts)
        return state


def _key(project: Project, entry: SourceFile) -> str:
    return "\0".join((entry.abspath, *project.script_folders))


def _document(result: EntryResult) -> dict[str, Any]:
    findings = [files.document_of(finding) for finding in result.findings]
    rest = {
        "predicted": result.predicted,
        "coverage": None if result.coverage is None else result.coverage.to_json(),
        "notes": result.notes,
        "paths": result.paths,
        "documents": result.documents,
    }
    return {"findings": findings, **rest}


def _result(document: dict[str, Any]) -> EntryResult:
    return EntryResult(
        findings=[files.finding_of(item) for item in document["findings"]],
        notes=list(document["notes"]),
        paths=list(document["paths"]),
        documents=dict(document["documents"]),
        predicted=document["predicted"],
        coverage=None if document["coverage"] is None else Coverage.from_json(document["coverage"]),
    )
