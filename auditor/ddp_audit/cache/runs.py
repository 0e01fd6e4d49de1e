"""Whole audits, kept: where nothing changed, what was found is what was found before.

A whole audit is one file named by a hash of the tool, its rules, the working directory, the paths and the options. It holds what
the audit looked at (source/seen.py) and what it found, and is used where all of that is on the disk as it was. Where it is not,
the audit is made with the results of single entries that still hold (entries.py). Audits that could not do all of their work are
not kept, their entries are. The files are for one machine and one user: a hash in them is no protection against malice.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit import __version__
from ddp_audit.cache import files
from ddp_audit.cache.files import cache_folder
from ddp_audit.cache.reports import SOURCES, installed_paths, tool_paths
from ddp_audit.outcome import AuditResult, Coverage, Late, NotFollowed, Options
from ddp_audit.source import unchanged
from ddp_audit.source.seen import digest_of, noting

if TYPE_CHECKING:
    from ddp_audit.rule import Rule
    from ddp_audit.source.notebook import Notebook
    from ddp_audit.source.project import Tell


def cached_audit(
    paths: Sequence[str], options: Options, tell: Tell | None = None, held: unchanged.Held | None = None
) -> AuditResult:
    """What `audit` gives, as far as possible from the cache. Where it went without errors, `held` takes up what it rests on.

    Raises UsageError.
    """
    held = {} if held is None else held
    began = time.time_ns()
    tool = (__version__, sys.version, _tool(options.rule_folders), str(Path.cwd()))
    folder = cache_folder()
    run = folder / f"run-{_hash(*tool, repr(list(paths)), repr(replace(options, jobs=1)))}.json"
    found = _load(run, options.rule_folders, began, held)
    if found is not None:
        return found
    from ddp_audit.audit import audit
    from ddp_audit.cache.entries import Memory

    memory = Memory(folder / f"parts-{_hash(*tool, _of_entries(options))}.json")
    with noting() as seen:
        result = audit(paths, options, memory=memory, tell=tell)
    memory.save()
    if not result.errors:
        held.update(unchanged.held(seen, began))
        files.write(run, {"seen": held, "result": _document(result)})
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


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:40]


def _tool(folders: Sequence[str]) -> str:
    """A hash of the sources of the tool and of all rules, so that a change of one counts without a change of the version.

    Hashing them takes longer than a run from the cache may: the hash is kept by what stat tells of them. What is installed beside
    them may bring rules, whose distributions are in the hash with their names, that is their versions.
    """
    import ddp_audit
    import ddp_audit_rules

    roots = [*ddp_audit.__path__, *ddp_audit_rules.__path__, *folders]
    sources = {root: [path for path in tool_paths([root]) if path.endswith(SOURCES)] for root in roots}
    states = [(path, unchanged.guard_of(path)) for path in (*itertools.chain(*sources.values()), *installed_paths())]
    kept = cache_folder() / f"tool-{_hash(repr((list(sources), states)))}.json"
    try:
        return str(files.read(kept)["hash"])
    except files.DAMAGE:
        found = _hash_of_tool(sources)
        files.write(kept, {"hash": found})
        return found


def _hash_of_tool(sources: Mapping[str, Sequence[str]]) -> str:
    from ddp_audit.rule_loading import distributions_with_rules

    total = hashlib.sha256()
    for root, paths in sources.items():
        for path in paths:
            total.update(path.removeprefix(root).encode(errors="surrogateescape") + digest_of(path).encode())
    return total.hexdigest() + repr(distributions_with_rules())


def _rules(codes: Sequence[str] | None, folders: Sequence[str]) -> dict[str, Rule]:
    """The rules of some codes, or all."""
    from ddp_audit.audit import installed_rules

    return {rule.code: rule for rule in installed_rules(folders) if codes is None or rule.code in codes}


def _codes(folders: Sequence[str]) -> dict[str, str]:
    from ddp_audit.audit import installed_rules, rule_names

    return rule_names(installed_rules(folders))


def _load(run: Path, folders: Sequence[str], began: int, held: unchanged.Held) -> AuditResult | None:
    """The result of a run that still holds; None for any other, and for one that is damaged."""
    try:
        document = files.read(run)
        holds, fresher = unchanged.holds(document["seen"], began)
        if not holds:
            return None
        kept = document["result"]
        result = AuditResult(
            findings=[files.finding_of(item) for item in kept["findings"]],
            suppressed=kept["suppressed"],
            notes=list(kept["notes"]),
            rules=Late(lambda: _rules(kept["rules"], folders)),
            looked_at=set(kept["looked_at"]),
            codes=Late(lambda: _codes(folders)) if kept["codes"] is None else set(kept["codes"]),
            left_out=frozenset(kept["left_out"]),
            coverage=None if kept["coverage"] is None else _coverage(kept["coverage"]),
            predicted=kept["predicted"],
        )
        named = sorted({path for finding in result.findings for path in finding.paths})
        result.notebooks = Late(lambda: {path: book for path in named if (book := _notebook(path)) is not None})
        result.sources = Late(lambda: {path: lines for path in named if (lines := _lines_of(path, result))})
    except files.DAMAGE:
        return None
    held.update(document["seen"])
    if fresher:
        files.write(run, document)
    else:
        files.touch(run)
    return result


def _coverage(kept: dict[str, Any]) -> Coverage:
    left = [NotFollowed(**place) for place in kept["not_followed"]]
    return Coverage(tuple(kept["reached"]), left, kept["complete"])


def _notebook(path: str) -> Notebook | None:
    from ddp_audit.source.notebook import SUFFIX, read_notebook

    return read_notebook(Path(path).read_bytes(), path) if path.endswith(SUFFIX) else None


def _lines_of(path: str, result: AuditResult) -> list[str]:
    """The lines of a file that a finding names; none where it cannot be read, as a document that only had a name can."""
    from ddp_audit.source.files import SourceError, decode, read_bytes

    if path in result.notebooks:
        return result.notebooks[path].text.split("\n")
    try:
        return decode(read_bytes(path), path).split("\n")
    except SourceError:
        return []


def _document(result: AuditResult) -> dict[str, object]:
    all_rules = isinstance(result.rules, Late)  # nobody asked for a rule, since the options name none
    return {
        "findings": [files.document_of(finding) for finding in result.findings],
        "suppressed": result.suppressed,
        "notes": result.notes,
        "rules": None if all_rules else sorted(result.rules),
        "looked_at": sorted(result.looked_at),
        "codes": None if all_rules else sorted(result.codes),
        "left_out": sorted(result.left_out),
        "coverage": None if result.coverage is None else result.coverage.to_json(),
        "predicted": None if result.predicted is None else dict(result.predicted),
    }
