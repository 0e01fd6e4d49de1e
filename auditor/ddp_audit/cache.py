"""The cache of whole audits: one that would look at nothing new is not made again.

An entry is one JSON file named by a hash of the tool, its rules, the working directory, the paths and the options. It holds
what the audit looked at (source/seen.py) and what it found, and is used where all of that is on the disk as it was. Audits that
could not do all of their work are not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit import __version__
from ddp_audit.audit import AuditResult, Options, audit, installed_rules
from ddp_audit.findings import Finding, Fix, Related, Span
from ddp_audit.source.files import SourceError, decode
from ddp_audit.source.notebook import SUFFIX, read_notebook
from ddp_audit.source.seen import Seen, noting

if TYPE_CHECKING:
    from ddp_audit.rule import Rule

_MOST_ENTRIES = 100


def cached_audit(paths: Sequence[str], options: Options) -> AuditResult:
    """What `audit` gives, from the cache where it holds it. Raises UsageError."""
    entry = cache_folder() / f"{_key(paths, options)}.json"
    found = _load(entry, options.rule_folders)
    if found is not None:
        return found
    with noting() as seen:
        result = audit(paths, options)
    if not result.errors:
        _store(entry, seen, result)
    return result


def cache_folder() -> Path:
    """Where entries lie: DDP_AUDIT_CACHE, or `ddp-audit` in the user's cache folder."""
    own = os.environ.get("DDP_AUDIT_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "ddp-audit"


def _key(paths: Sequence[str], options: Options) -> str:
    parts = (
        __version__,
        sys.version,
        _tool(options.rule_folders),
        str(Path.cwd()),
        repr(list(paths)),
        repr(replace(options, jobs=1)),
    )
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:40]


def _tool(folders: Sequence[str]) -> str:
    """The state of the sources of the tool and of all rules, so that a change of one counts without a change of the version.

    What is installed beside them may bring rules: the folder of the distributions changes with each of these.
    """
    import ddp_audit_rules

    roots = [Path(__file__).parent, *map(Path, ddp_audit_rules.__path__), *map(Path, folders)]
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for root in roots for file in sorted(root.rglob("*.py"))]
    return repr((states, Path(sysconfig.get_path("purelib")).stat().st_mtime_ns))


class _LateRules(Mapping[str, "Rule"]):
    """Some of the installed rules by code, loaded when the first one is asked for."""

    def __init__(self, codes: Sequence[str], folders: Sequence[str]) -> None:
        self._codes = codes
        self._folders = folders
        self._rules: dict[str, Rule] | None = None

    def __getitem__(self, code: str) -> Rule:
        if self._rules is None:
            self._rules = {rule.code: rule for rule in installed_rules(self._folders) if rule.code in self._codes}
        return self._rules[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)


def _load(entry: Path, folders: Sequence[str]) -> AuditResult | None:
    """The result of an entry that still holds; None for any other, and for one that is damaged."""
    try:
        document = json.loads(entry.read_bytes())
        if not Seen(**document["seen"]).holds():
            return None
        os.utime(entry)  # the oldest entries are dropped first
        stored = document["result"]
        result = AuditResult(
            findings=[_finding(item) for item in stored["findings"]],
            suppressed=stored["suppressed"],
            notes=stored["notes"],
            rules=_LateRules(stored["rules"], folders),
            looked_at=set(stored["looked_at"]),
            codes=set(stored["codes"]),
        )
        named = {f.span.path for f in result.findings} | {place.path for f in result.findings for place in f.related}
        named &= result.looked_at
        result.sources = {path: _text_of(path).split("\n") for path in named}
        return result
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SourceError):
        return None


def _text_of(path: str) -> str:
    data = Path(path).read_bytes()
    return read_notebook(data, path).text if path.endswith(SUFFIX) else decode(data, path)


def _finding(item: dict[str, Any]) -> Finding:
    item["span"] = Span(**item["span"])
    item["related"] = [Related(**place) for place in item["related"]]
    item["fix"] = None if item["fix"] is None else Fix(**item["fix"])
    return Finding(**item)


def _store(entry: Path, seen: Seen, result: AuditResult) -> None:
    """Writes an entry in one step, and drops the oldest of too many. A folder that cannot be written keeps nothing."""
    document = {
        "seen": {"files": seen.files, "kinds": seen.kinds, "folders": seen.folders, "documents": seen.documents},
        "result": {
            "findings": [asdict(finding) for finding in result.findings],
            "suppressed": result.suppressed,
            "notes": result.notes,
            "rules": sorted(result.rules),
            "looked_at": sorted(result.looked_at),
            "codes": sorted(result.codes),
        },
    }
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=entry.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
            json.dump(document, stream, ensure_ascii=False)
        Path(name).replace(entry)
        entries = sorted(entry.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in entries[:-_MOST_ENTRIES]:
            old.unlink(missing_ok=True)
    except (OSError, ValueError):
        return
